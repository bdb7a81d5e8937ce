package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/quorate/quorate/test/harness/build"
)

// hosts are what runs in the pods of the scenario druid before and after the upgrade, and etcd-druid. They are not all
// of the harness's: etcd-druid never renders its own next etcd-backup-restore, because the Etcd names the one with
// Quorate inside when it asks for the next etcd.
var hosts = []build.Target{build.Wrapper34, build.Wrapper35, build.BackupRestore, build.DropIn, build.Druid}

// programs are what a scenario needs, the quickest first, so that a mistake in the code at hand shows early, and the
// modules of the others are downloaded meanwhile. Kubernetes' own etcd is the newest one.
func programs(scenario string) []build.Target {
	if scenario == etcdDruid {
		// Its etcds are inside the wrappers. People look at an Etcd with kubectl.
		return append([]build.Target{build.Quorate, build.Etcd36, build.Kube, build.Kubectl}, hosts...)
	}
	return []build.Target{build.Quorate, build.Etcd35, build.Etcd36, build.Kube}
}

// built is what was built, and when. The program outside of namespaces builds, and tells the one inside.
type built struct {
	Began    time.Time
	Took     time.Duration
	Binaries build.Binaries
}

func (b *built) build(ctx context.Context, line *build.Line, targets []build.Target) (err error) {
	began := time.Now()
	show := build.NewShow(line, "demo")
	defer show.End()
	b.Binaries, err = build.Watch(ctx, show, targets)
	b.Took = time.Since(began)
	return err
}

// builtVariable has a built in it, as JSON.
const builtVariable = "QUORATE_DEMO_BUILT"

func (b *built) handInside(setenv func(name, value string) error) error {
	text, err := json.Marshal(b)
	if err != nil {
		return err
	}
	return setenv(builtVariable, string(text))
}

func builtOutside(getenv func(string) string) (b built, err error) {
	if err := json.Unmarshal([]byte(getenv(builtVariable)), &b); err != nil {
		return b, fmt.Errorf("%s does not say what was built: %w", builtVariable, err)
	}
	return b, nil
}
