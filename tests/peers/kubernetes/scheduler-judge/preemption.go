package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/kubernetes/pkg/scheduler/framework/preemption"
	"k8s.io/kubernetes/pkg/scheduler/util"
)

// How often upstream's choice is made, to check the judge's own list of ties against it.
const choices = 8

// preempt records what DefaultPreemption would do, without doing it: nothing is evicted, because only the parts before
// the eviction run. It examines every node, as with minCandidateNodesPercentage 100.
func (b *bench) preempt(ctx context.Context, state fwk.CycleState, world *world, statuses *framework.NodeToStatus, given *answer) error {
	plugin, ok := b.plugins[names.DefaultPreemption].(*defaultpreemption.DefaultPreemption)
	if !ok {
		return nil
	}
	made := &preemptionAnswer{Candidates: []candidateAnswer{}, Best: []string{}}
	given.Preemption = made
	made.Blocked = b.blocked(ctx, state, world, statuses)
	now := time.Now()
	plugin.MoreImportantPod = func(first, second *corev1.Pod) bool { return moreImportant(first, second, now) }

	made.Eligible, _ = plugin.PodEligibleToPreemptOthers(ctx, world.pod, statuses.Get(world.pod.Status.NominatedNodeName))
	candidates := []preemption.Candidate{}
	if made.Eligible {
		nodes, err := statuses.NodesForStatusCode(b.snapshot.NodeInfos(), fwk.Unschedulable)
		if err != nil {
			return fmt.Errorf("listing the nodes that preemption may help: %w", err)
		}
		if len(nodes) > 0 {
			pdbs, err := plugin.Evaluator.PdbLister.List(labels.Everything())
			if err != nil {
				return fmt.Errorf("listing the budgets: %w", err)
			}
			// The error is one node's; upstream, too, ignores it while another node is a candidate.
			found, tried, _ := plugin.Evaluator.DryRunPreemption(ctx, state, world.pod, nodes, pdbs, 0, int32(len(nodes)))
			candidates = found
			tried.ForEachExplicitNode(func(node string, status *fwk.Status) {
				made.Rejected = append(made.Rejected, refusal(node, rejectionBy(status.Plugin(), status)))
			})
			slices.SortFunc(made.Rejected, func(a, b nodeAnswer) int { return cmp.Compare(a.Name, b.Name) })
		}
	}
	if len(candidates) == 0 {
		// With no victims the plugin itself has no effect, so it states the result.
		result, status := plugin.PostFilter(ctx, state, world.pod, statuses)
		made.Message = status.Message()
		made.ClearsNomination = result != nil && result.Mode() == fwk.ModeOverride && result.NominatedNodeName == ""
		return nil
	}
	for _, candidate := range candidates {
		made.Candidates = append(made.Candidates, b.candidate(candidate, world))
	}
	slices.SortFunc(made.Candidates, func(a, b candidateAnswer) int { return cmp.Compare(a.Node, b.Node) })
	return choose(ctx, plugin, candidates, now, made)
}

// blocked returns the plugin whose PostFilter keeps DefaultPreemption from being called. DynamicResources does so if
// PreFilter ended before its own PreFilter ran.
func (b *bench) blocked(ctx context.Context, state fwk.CycleState, world *world, statuses *framework.NodeToStatus) *rejection {
	for _, enabled := range b.framework.ListPlugins().PostFilter.Enabled {
		if enabled.Name == names.DefaultPreemption {
			return nil
		}
		plugin, ok := b.plugins[enabled.Name].(fwk.PostFilterPlugin)
		if !ok {
			continue
		}
		if _, status := plugin.PostFilter(ctx, state, world.pod, statuses); status.Code() != fwk.Unschedulable {
			return rejectionBy(enabled.Name, status)
		}
	}
	return nil
}

func (b *bench) candidate(candidate preemption.Candidate, world *world) candidateAnswer {
	made := candidateAnswer{
		Node:          candidate.Name(),
		Victims:       []string{},
		PDBViolations: candidate.Victims().NumPDBViolations,
	}
	for _, victim := range candidate.Victims().Pods {
		made.Victims = append(made.Victims, key(victim))
	}
	if node, err := b.snapshot.NodeInfos().Get(candidate.Name()); err == nil {
		for _, pod := range node.GetPods() {
			if corev1helpers.PodPriority(pod.GetPod()) < corev1helpers.PodPriority(world.pod) {
				made.LowerPriority++
			}
		}
	}
	return made
}

func key(pod *corev1.Pod) string {
	return pod.Namespace + "/" + pod.Name
}

// moreImportant is upstream's order of victims made total. Upstream leaves pods of the same priority and start time in an
// arbitrary order, and takes a new reading of the clock for every pod that has not started, so that such pods have no
// order at all. Here they all count as started now, and the name decides ties.
func moreImportant(first, second *corev1.Pod, now time.Time) bool {
	a, b := started(first, now), started(second, now)
	if util.MoreImportantPod(a, b) {
		return true
	}
	return !util.MoreImportantPod(b, a) && key(first) < key(second)
}

// started returns the pod with a start time.
func started(pod *corev1.Pod, now time.Time) *corev1.Pod {
	if pod.Status.StartTime != nil {
		return pod
	}
	with := *pod
	with.Status.StartTime = &metav1.Time{Time: now}
	return &with
}

// startedCandidate is a candidate whose victims all have a start time, so that two nodes with victims that have not
// started tie, as they do for upstream but for the nanoseconds between two readings of the clock.
type startedCandidate struct {
	name    string
	victims *extenderv1.Victims
}

func (c *startedCandidate) Name() string                 { return c.name }
func (c *startedCandidate) Victims() *extenderv1.Victims { return c.victims }

// choose records all nodes that upstream may choose. Upstream ends with the first node in the order of a Go map, so the
// rules before it are applied here to find every node that it leaves; upstream's own choice, made several times, must be
// among these. The two ways have nothing in common but the start time of a node.
func choose(ctx context.Context, plugin *defaultpreemption.DefaultPreemption, found []preemption.Candidate, now time.Time, made *preemptionAnswer) error {
	var candidates []preemption.Candidate
	for _, candidate := range found {
		victims := &extenderv1.Victims{NumPDBViolations: candidate.Victims().NumPDBViolations}
		for _, pod := range candidate.Victims().Pods {
			victims.Pods = append(victims.Pods, started(pod, now))
		}
		candidates = append(candidates, &startedCandidate{name: candidate.Name(), victims: victims})
	}
	left := candidates
	for _, cost := range []func(*extenderv1.Victims) int64{
		func(victims *extenderv1.Victims) int64 { return victims.NumPDBViolations },
		func(victims *extenderv1.Victims) int64 { return int64(corev1helpers.PodPriority(victims.Pods[0])) },
		func(victims *extenderv1.Victims) int64 {
			var sum int64
			for _, pod := range victims.Pods {
				sum += int64(corev1helpers.PodPriority(pod)) + math.MaxInt32 + 1
			}
			return sum
		},
		func(victims *extenderv1.Victims) int64 { return int64(len(victims.Pods)) },
		func(victims *extenderv1.Victims) int64 { return -util.GetEarliestPodStartTime(victims).UnixNano() },
	} {
		left = cheapest(left, cost)
	}
	for _, candidate := range left {
		made.Best = append(made.Best, candidate.Name())
	}
	slices.Sort(made.Best)
	for range choices {
		chosen := plugin.Evaluator.SelectCandidate(ctx, candidates)
		if !slices.Contains(made.Best, chosen.Name()) {
			return fmt.Errorf("upstream chose node %s, which is not among the ties %v", chosen.Name(), made.Best)
		}
	}
	made.Node = &made.Best[0]
	return nil
}

func cheapest(candidates []preemption.Candidate, cost func(*extenderv1.Victims) int64) []preemption.Candidate {
	var kept []preemption.Candidate
	lowest := int64(math.MaxInt64)
	for _, candidate := range candidates {
		of := cost(candidate.Victims())
		if of < lowest {
			lowest = of
			kept = nil
		}
		if of == lowest {
			kept = append(kept, candidate)
		}
	}
	return kept
}
