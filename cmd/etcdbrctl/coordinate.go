package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"time"

	"github.com/gardener/etcd-backup-restore/pkg/miscellaneous"
	"github.com/gardener/etcd-backup-restore/pkg/server"
	brtypes "github.com/gardener/etcd-backup-restore/pkg/types"
	"github.com/prometheus/client_golang/prometheus"
	cron "github.com/robfig/cron/v3"
	"github.com/sirupsen/logrus"
	kubernetes "sigs.k8s.io/controller-runtime/pkg/client/config"

	"github.com/quorate/quorate/coordinator"
	"github.com/quorate/quorate/pkg/options"
	"github.com/quorate/quorate/pkg/page"
)

// start starts a coordinator with what the host knows. When stop returns, it has given back what it held.
func start(ctx context.Context, c *config, log *logrus.Entry) (stop func(), err error) {
	cfg, err := c.coordinator(log)
	if err != nil {
		return nil, err
	}
	quorate, err := coordinator.New(cfg)
	if err != nil {
		return nil, err
	}
	hide := func() {}
	if c.ListenAddress != "" {
		listener, err := net.Listen("tcp", c.ListenAddress)
		if err != nil {
			return nil, fmt.Errorf("--pod-update-listen-address: %q: %w", c.ListenAddress, err)
		}
		hide = page.Serve(listener, page.Handler(page.Config{
			Source: quorate, Namespace: cfg.Namespace, StatefulSet: cfg.StatefulSet, PodName: cfg.PodName,
			Version: cfg.Version,
		}), log.WithField("actor", "quorate"))
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer hide()
		if err := quorate.Run(ctx); err != nil {
			log.WithError(err).Error("quorum-aware pod updates have ended")
		}
	}()
	return func() { cancel(); <-done }, nil
}

// coordinator returns what the host hands over.
func (c *config) coordinator(log *logrus.Entry) (coordinator.Config, error) {
	api, err := kubernetes.GetConfig()
	if err != nil {
		return coordinator.Config{}, fmt.Errorf("the Kubernetes API: %w", err)
	}
	api.UserAgent = "quorate/" + version()
	cfg, err := c.PodUpdates.Config(os.Getenv, api)
	if err != nil {
		return cfg, err
	}
	file := miscellaneous.GetConfigFilePath()
	prefix, err := miscellaneous.GetMemberNamePrefix(file)
	if err != nil {
		return cfg, err
	}
	cfg.Names = coordinator.DefaultNames()
	cfg.Names.MemberOf = func(pod string) string { return miscellaneous.ComputeMemberName(prefix, pod) }
	if cfg.Gates, err = gates(c.BackupRestoreComponentConfig, cfg); err != nil {
		return cfg, err
	}
	// etcd-druid writes all members' URLs into etcd's configuration. Where somebody else wrote it, it may have none.
	members, _ := miscellaneous.GetAllMemberClientURLs(file)
	cfg.Endpoints = c.endpoints(members)
	cfg.Dial = etcd(c.EtcdConnectionConfig).Dial(c.PodUpdates.ProbeTimeout)
	cfg.Policy.HostDefragments = defragments(c.DefragmentationSchedule)
	cfg.Metrics, cfg.Log, cfg.Version = prometheus.DefaultRegisterer, log, version()
	return cfg, nil
}

// gates returns the gate BackupReady if the host takes snapshots, and the gate SidecarsStarted if it renews the Leases
// of the members.
func gates(host *server.BackupRestoreComponentConfig, cfg coordinator.Config) (all []coordinator.Gate, err error) {
	if host.SnapstoreConfig != nil && host.SnapstoreConfig.Provider != "" {
		b, err := newBackups(host, cfg.Leases)
		if err != nil {
			return nil, err
		}
		all = append(all, coordinator.Gate{Name: coordinator.BackupReady, Ask: b.ask})
	}
	if host.HealthConfig.MemberLeaseRenewalEnabled {
		all = append(all, coordinator.Gate{Name: sidecarsStarted, Ask: newStarted(cfg).ask})
	}
	return all, nil
}

// endpoints are the host's own, and the members' in any order. The host's endpoint is usually that of its own member
// alone, which may be the one that is down.
func (c *config) endpoints(members []string) []string {
	slices.Sort(members)
	return slices.Concat(c.EtcdConnectionConfig.Endpoints, c.EtcdConnectionConfig.ServiceEndpoints, members)
}

// etcd is the host's way to etcd. By default the host's flags skip the verification of certificates, which has an
// effect only where they ask for TLS.
func etcd(host *brtypes.EtcdConnectionConfig) *options.Etcd {
	tls := !host.InsecureTransport || host.CaFile+host.CertFile+host.KeyFile != ""
	return &options.Etcd{
		CACert: host.CaFile, Cert: host.CertFile, Key: host.KeyFile,
		InsecureSkipVerify: host.InsecureSkipVerify && tls,
		Username:           host.Username, Password: host.Password,
	}
}

// defragments returns the host's schedule for defragmentations, or nothing if its time never comes. The host has no
// other way to switch them off.
func defragments(schedule string) string {
	when, err := cron.ParseStandard(schedule)
	if err != nil || when.Next(time.Now()).IsZero() {
		return "" // If it cannot be read, the host does not start.
	}
	return schedule
}
