package main

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
)

// plugin is First or Second.
type plugin struct {
	name    string
	handle  fwk.Handle
	records *records
	lock    sync.Mutex
	calls   map[callsOf]int
}

type callsOf struct {
	pod types.UID
	at  point
}

var (
	_ fwk.PreEnqueuePlugin  = &plugin{}
	_ fwk.EnqueueExtensions = &plugin{}
	_ fwk.PreFilterPlugin   = &plugin{}
	_ fwk.FilterPlugin      = &plugin{}
	_ fwk.PostFilterPlugin  = &plugin{}
	_ fwk.PreScorePlugin    = &plugin{}
	_ fwk.ScorePlugin       = &plugin{}
	_ fwk.ScoreExtensions   = &plugin{}
	_ fwk.ReservePlugin     = &plugin{}
	_ fwk.PermitPlugin      = &plugin{}
	_ fwk.PreBindPlugin     = &plugin{}
	_ fwk.BindPlugin        = &plugin{}
	_ fwk.PostBindPlugin    = &plugin{}
)

// arguments is the plugin's part of pluginConfig.
type arguments struct {
	File string `json:"file"`
}

func pluginFactory(name string) frameworkruntime.PluginFactory {
	return func(_ context.Context, configuration runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		given := &arguments{}
		if err := frameworkruntime.DecodeInto(configuration, given); err != nil {
			return nil, fmt.Errorf("reading the arguments of plugin %s: %w", name, err)
		}
		if given.File == "" {
			return nil, fmt.Errorf("plugin %s needs the argument \"file\" in pluginConfig", name)
		}
		file, err := openRecords(given.File)
		if err != nil {
			return nil, err
		}
		return &plugin{name: name, handle: handle, records: file, calls: map[callsOf]int{}}, nil
	}
}

func (p *plugin) Name() string {
	return p.name
}

// EventsToRegister lists one event: any update of a Node. Without this method, the pods that the plugin rejected would
// be woken by every event of every resource; with an empty list, by none but the timeout of 5 minutes. An added or
// deleted Node and all changes of pods are left out: the scheduler itself patches the condition and the nomination of a
// rejected pod, and a test decides when the pod is tried again by changing a Node, for example one of its labels.
// There is no QueueingHintFn, so each of these events wakes each of these pods.
func (p *plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{
		{Event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Update}},
	}, nil
}

// answer decides what the plugin answers to a call, and records it.
func (p *plugin) answer(at point, pod *corev1.Pod, node string) deviation {
	given := p.decide(at, pod)
	p.record(at, pod, node, given.code)
	return given
}

// decide is called exactly once per call of the plugin, because it counts them.
func (p *plugin) decide(at point, pod *corev1.Pod) deviation {
	if !isRecorded(pod) {
		return deviation{}
	}
	number := p.count(at, pod.UID)
	given := deviationOf(pod, p.name, at)
	if number > timesMax(pod) {
		return deviation{}
	}
	return given
}

// count returns the number of this call. Filter and Score are called once per node; their number is that of the attempt,
// and each attempt starts with one call of PreFilter.
func (p *plugin) count(at point, pod types.UID) int {
	p.lock.Lock()
	defer p.lock.Unlock()
	if at == atFilter || at == atScore {
		return p.calls[callsOf{pod: pod, at: atPreFilter}]
	}
	key := callsOf{pod: pod, at: at}
	p.calls[key]++
	return p.calls[key]
}

func (p *plugin) record(at point, pod *corev1.Pod, node string, code fwk.Code) {
	if !isRecorded(pod) {
		return
	}
	p.records.write(record{Point: at, Plugin: p.name, Pod: pod.Name, Node: node, Status: code.String()})
}

// status returns nil for Success, as kube-scheduler's own plugins do.
func (d deviation) status() *fwk.Status {
	if d.code == fwk.Success {
		return nil
	}
	return fwk.NewStatus(d.code, fmt.Sprintf("%s.%s answers %s", d.plugin, d.at, d.code))
}
