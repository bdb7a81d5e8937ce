package kubelet

import (
	"context"
	"debug/buildinfo"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
)

// Versions says in one line what nodes run, by the programs' own word. Kubernetes is compiled from its module here, so
// that its program knows its version only as that of the module.
func Versions(ctx context.Context, kube, runtime string) (string, error) {
	info, err := buildinfo.ReadFile(kube)
	if err != nil {
		return "", err
	}
	kubernetes := ""
	for _, module := range info.Deps {
		if module.Path == "k8s.io/kubernetes" {
			kubernetes = module.Version
		}
	}
	containerd, err := said(ctx, filepath.Join(runtime, "usr", "bin", "containerd"))
	if err != nil {
		return "", err
	}
	runc, err := said(ctx, filepath.Join(runtime, "usr", "sbin", "runc"))
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("real kubelets %s with containerd %s and runc %s", release(kubernetes), release(containerd),
		release(runc)), nil
}

func said(ctx context.Context, program string) (string, error) {
	out, err := exec.CommandContext(ctx, program, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w", program, err)
	}
	return string(out), nil
}

var number = regexp.MustCompile(`\d+(\.\d+)+`)

// release is the first version in a text, without what a distribution adds to it.
func release(text string) string {
	if found := number.FindString(text); found != "" {
		return found
	}
	return "of an unknown version"
}
