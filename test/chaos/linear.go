package chaos

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/quorate/quorate/test/harness/traffic"
)

// Linearizability is porcupine's verdict on a history.
type Linearizability struct {
	// Keys and Operations are how much was judged.
	Keys, Operations int
	// Illegal are the keys whose history no order of its operations explains.
	Illegal []string
	// Unknown are the keys for which the time did not suffice.
	Unknown []string
}

// Linearizable judges a history key by key, within a time for all of them. Every key is a
// register. Of a key that is wrong, porcupine's picture goes to a file of the directory.
func Linearizable(h *traffic.History, within time.Duration, dir string) (Linearizability, error) {
	var l Linearizability
	var problem error
	deadline := time.Now().Add(within)
	histories := registers(h)
	keys := make([]string, 0, len(histories))
	for key := range histories {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		operations := histories[key]
		l.Keys++
		l.Operations += len(operations)
		// A key that comes late gets a moment too; 0 would mean no limit.
		switch left := max(time.Until(deadline), time.Second); porcupine.CheckOperationsTimeout(register,
			operations, left) {
		case porcupine.Ok:
		case porcupine.Unknown:
			l.Unknown = append(l.Unknown, key)
		case porcupine.Illegal:
			l.Illegal = append(l.Illegal, key)
			if _, info := porcupine.CheckOperationsVerbose(register, operations, left); problem == nil {
				problem = porcupine.VisualizePath(register, info,
					fmt.Sprintf("%s/not-linearizable-%d.html", dir, len(l.Illegal)))
			}
		}
	}
	return l, problem
}

// registers are the operations of a history by key, those whose effect is not known
// included.
//
// A write that was not answered may have happened at any time after its call, or never. If
// no read ever returned its value it is left out: as the last write of all it explains
// anything that the others explain. Otherwise it happened before the first such read
// returned.
func registers(h *traffic.History) map[string][]porcupine.Operation {
	type keyAndValue struct{ key, value string }
	firstRead := map[keyAndValue]time.Duration{}
	read := func(key, value string, returned time.Duration) {
		id := keyAndValue{key, value}
		if first, ok := firstRead[id]; !ok || returned < first {
			firstRead[id] = returned
		}
	}
	for i := range h.Operations {
		op := &h.Operations[i]
		if op.Outcome == traffic.OK && op.ReadRevision > 0 && op.Kind != traffic.SerializableGet {
			read(op.Key, op.Read, op.Return)
		}
	}
	for _, f := range h.Finals {
		for _, kv := range f.Keys {
			read(kv.Key, kv.Value, f.Return)
		}
	}

	clients := map[string]int{}
	all := map[string][]porcupine.Operation{}
	add := func(client, key string, in input, out string, call, end time.Duration) {
		id, ok := clients[client]
		if !ok {
			id = len(clients)
			clients[client] = id
		}
		all[key] = append(all[key], porcupine.Operation{ClientId: id, Input: in, Output: out, Call: int64(call),
			Return: int64(end)})
	}
	for i := range h.Operations {
		op := &h.Operations[i]
		in := input{kind: op.Kind, value: op.Value, expect: op.Expect}
		switch first, wasRead := firstRead[keyAndValue{op.Key, op.Value}]; {
		case op.Kind == traffic.SerializableGet || op.Outcome == traffic.Failed:
		case op.Outcome == traffic.Unknown:
			if wasRead {
				in.swapped = true
				add(op.Client, op.Key, in, "", op.Call, max(op.Call, first))
			}
		default:
			in.swapped = op.Swapped
			add(op.Client, op.Key, in, op.Read, op.Call, op.Return)
		}
	}
	for _, f := range h.Finals {
		if f.Error != "" {
			continue
		}
		found := map[string]string{}
		for _, kv := range f.Keys {
			found[kv.Key] = kv.Value
		}
		for key := range all {
			add("final read at "+f.Member, key, input{kind: traffic.Get}, found[key], f.Call, f.Return)
		}
	}
	for key := range all {
		slices.SortStableFunc(all[key], func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	}
	return all
}

// input is what an operation asked of a register.
type input struct {
	kind          traffic.Kind
	value, expect string
	// swapped is true for a transaction whose condition held.
	swapped bool
}

// register is a key of etcd. Its state is its value. Before the first write that is empty,
// which is never written.
var register = porcupine.Model{
	Init: func() any { return "" },
	Step: func(state, in, out any) (bool, any) {
		value, op, read := state.(string), in.(input), out.(string)
		switch {
		case op.kind == traffic.Put:
			return true, op.value
		case op.kind == traffic.Txn && op.swapped:
			return value == op.expect, op.value
		case op.kind == traffic.Txn:
			return value != op.expect && value == read, value
		default:
			return value == read, value
		}
	},
	DescribeOperation: func(in, out any) string {
		switch op := in.(input); {
		case op.kind == traffic.Put:
			return fmt.Sprintf("put %s", op.value)
		case op.kind == traffic.Txn && op.swapped:
			return fmt.Sprintf("%s -> %s", op.expect, op.value)
		case op.kind == traffic.Txn:
			return fmt.Sprintf("not %s but %s", op.expect, out)
		default:
			return fmt.Sprintf("get %s", out)
		}
	},
}
