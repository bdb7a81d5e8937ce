// Command kube is the Kubernetes of the harness in one program: the real API server, controller
// manager, scheduler and kubelet, compiled from k8s.io/kubernetes. One program, because they share
// nearly all of their code and linking is the slowest step of a warm build.
//
//	kube apiserver    takes every flag of kube-apiserver
//	kube controllers  takes every flag of kube-controller-manager
//	kube scheduler    takes every flag of kube-scheduler
//	kube kubelet      takes every flag of kubelet
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	var command *cobra.Command
	switch name := append(os.Args, "")[1]; name {
	case "apiserver":
		command = apiserver.NewAPIServerCommand()
	case "controllers":
		command = controllers.NewControllerManagerCommand()
	case "scheduler":
		command = scheduler.NewSchedulerCommand()
	case "kubelet":
		command = kubelet.NewKubeletCommand(context.Background())
	default:
		fmt.Fprintf(os.Stderr, "kube: unknown command %q; say apiserver, controllers, scheduler or kubelet, with "+
			"--help for its flags\n", name)
		os.Exit(2)
	}
	command.SetArgs(os.Args[2:])
	os.Exit(cli.Run(command))
}
