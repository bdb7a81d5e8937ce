// Command kube is the Kubernetes control plane of the harness in one program: the
// real API server and the few real controllers that a StatefulSet needs, compiled
// from k8s.io/kubernetes. One program, because they share nearly all of their code
// and linking is the slowest step of a warm build.
//
//	kube apiserver    takes every flag of kube-apiserver
//	kube controllers  takes --kubeconfig, --controllers, --feature-gates, …; see --help
//
// Both run until SIGTERM or SIGINT. Exit codes: 0 after a signal, 1 on an error, 2
// when the command line is wrong.
package main

import (
	"fmt"
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

const usage = `usage: kube apiserver   [flags of kube-apiserver]
       kube controllers [flags]
Add --help for the flags.
`

func main() {
	if len(os.Args) < 2 {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	switch name, args := os.Args[1], os.Args[2:]; name {
	case "apiserver":
		command := app.NewAPIServerCommand()
		command.SetArgs(args)
		os.Exit(cli.Run(command))
	case "controllers":
		os.Exit(controllersMain(args))
	case "-h", "-help", "--help", "help":
		fmt.Print(usage)
	default:
		fmt.Fprintf(os.Stderr, "kube: unknown command %q\n%s", name, usage)
		os.Exit(2)
	}
}
