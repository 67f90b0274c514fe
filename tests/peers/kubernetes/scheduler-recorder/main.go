// scheduler-recorder: kube-scheduler with two plugins that write down each of their calls.
//
// It is the kube-scheduler of the Kubernetes release that its module pins, with kube-scheduler's command line, and three
// more plugins. First and Second have one implementation, at all extension points: PreEnqueue, PreFilter, Filter,
// PostFilter, PreScore, Score with NormalizeScore, Reserve and Unreserve, Permit, PreBindPreFlight, PreBind, Bind and
// PostBind. RecorderSort sorts the queue as PrioritySort does and records nothing, because the number of its calls
// depends on the queue's heap.
//
// # Configuration
//
// The configuration enables First and Second, in this order, and RecorderSort at queueSort. First and Second need
// arguments in pluginConfig: {"file": "/path"}. If both name the same path, they write to one file. With
// parallelism 1, the nodes are visited one after the other.
//
// # Records
//
// Each call appends one line to the file, with a single write, in the order of the calls:
//
//	{"point":"Filter","plugin":"First","pod":"name","node":"n1","status":"Success"}
//
// The node is empty at PreEnqueue, PreFilter, PostFilter, PreScore and NormalizeScore. Unreserve and PostBind return
// nothing; their status is Success. A line is written before the call takes effect: the line of a Permit that waits,
// before the pod waits; the line of a Permit that allows another pod, before that pod continues. Only Bind is recorded
// when the API server has answered. Lines of different pods mix: the binding cycle of a pod runs beside the scheduling
// cycle of the next one.
//
// kube-scheduler keeps the PreEnqueue plugins in a Go map, so the order of First and Second is random there.
//
// # Scenarios
//
// The pod's label `scenario` decides what the plugins answer. They answer Success at every point that is not listed.
// Pods without this label get Success everywhere and are not recorded. An unknown scenario ends the program.
//
//	success                    First binds
//	pre-filter-error           First.PreFilter: Error
//	filter-error               First.Filter: Error
//	filter-refuses-all         Second.Filter: Unschedulable on every node; both PostFilters: Unschedulable
//	post-filter-nominates      the same, but First.PostFilter: Success, nominates the alphabetically first node
//	post-filter-error          the same, but First.PostFilter: Error
//	pre-score-skips            First.PreScore: Skip
//	score-out-of-range         First.Score: 101, which its NormalizeScore does not change
//	reserve-fails-in-second    Second.Reserve: Unschedulable
//	permit-waits-then-allowed  First.Permit: Wait 60 s
//	permit-waits-then-rejected First.Permit: Wait 60 s
//	permit-waits-for-both      both Permits: Wait 60 s
//	permit-times-out           First.Permit: Wait 1 s
//	permit-waits-not-at-all    First.Permit: Wait 0 s
//	permit-denied              Second.Permit: Unschedulable
//	deleted-while-waiting      First.Permit: Wait 60 s; the test deletes the pod
//	pre-flight-skips           First.PreBindPreFlight: Skip
//	pre-bind-fails             Second.PreBind: Error
//	pre-bind-rejects           Second.PreBind: Unschedulable
//	bind-declined-then-taken   First.Bind: Skip; Second binds
//	bind-fails                 First.Bind: Error
//	allower                    each Permit allows its own plugin for the pods that wait in permit-waits-then-allowed and
//	                           permit-waits-for-both
//	rejecter                   First.Permit rejects the pods that wait in permit-waits-then-rejected
//
// The label `times` limits every answer listed above: after the first N times the plugin answers Success. Calls are
// counted per plugin, point and pod UID. Filter and Score are called once per node; there N counts attempts to schedule
// the pod, so that the plugin gives all nodes of one attempt the same answer.
//
// NormalizeScore gives the alphabetically first node the highest score and the others the lowest, so that this node is
// chosen whatever the order in which the nodes are visited.
//
// A pod that First or Second rejected is woken by an update of a Node and by nothing else.
//
// # Determinism
//
// After a failed binding cycle, Unreserve waits until the scheduler has seen the nomination that it wrote itself; see
// settle.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
)

func main() {
	command := app.NewSchedulerCommand(
		app.WithPlugin(first, pluginFactory(first)),
		app.WithPlugin(second, pluginFactory(second)),
		app.WithPlugin(recorderSortName, newRecorderSort),
	)
	os.Exit(cli.Run(command))
}
