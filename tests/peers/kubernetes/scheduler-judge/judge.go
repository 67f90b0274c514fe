package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// The maximum number of cached frameworks. Random worlds use few configurations, so this is enough.
const benchesMax = 64

const feasible = "Feasible"

// court caches one framework per configuration, because building one takes longer than judging a world.
type court struct {
	benches map[string]*bench
}

func newCourt() *court {
	return &court{benches: map[string]*bench{}}
}

func (c *court) bench(request *request, schedulerName string) (*bench, error) {
	key := fmt.Sprintf("%q %q %q", schedulerName, request.Plugins, request.Config)
	if found, ok := c.benches[key]; ok {
		return found, nil
	}
	profiles, err := readProfiles(request.Config)
	if err != nil {
		return nil, err
	}
	// If the pod names none of the profiles, the first one applies, so that a world need not repeat its name.
	index := max(0, slices.IndexFunc(profiles, func(profile config.KubeSchedulerProfile) bool {
		return profile.SchedulerName == schedulerName
	}))
	profile, err := only(profiles[index], request.Plugins)
	if err != nil {
		return nil, err
	}
	made, err := newBench(profile)
	if err != nil {
		return nil, err
	}
	if len(c.benches) >= benchesMax {
		for key, old := range c.benches {
			old.stop()
			delete(c.benches, key)
		}
	}
	c.benches[key] = made
	return made, nil
}

// judge follows kube-scheduler's schedulePod, but filters and scores every node, and keeps each plugin's result.
func (c *court) judge(request *request, world *world) (*answer, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	bench, err := c.bench(request, world.pod.Spec.SchedulerName)
	if err != nil {
		return nil, err
	}
	if err := bench.seat(ctx, world); err != nil {
		return nil, err
	}
	nodes, err := bench.snapshot.NodeInfos().List()
	if err != nil {
		return nil, fmt.Errorf("listing the nodes: %w", err)
	}
	given := &answer{
		ID:      request.ID,
		Pod:     world.pod.Namespace + "/" + world.pod.Name,
		Profile: bench.framework.ProfileName(),
		Nodes:   make([]nodeAnswer, 0, len(nodes)),
		Best:    []string{},
		Weights: bench.weights,
	}
	if request.Validate {
		given.Invalid = validate(world)
	}
	for _, plugin := range bench.framework.PreEnqueuePlugins() {
		if status := plugin.PreEnqueue(ctx, world.pod); !status.IsSuccess() {
			given.PreEnqueue = rejectionBy(plugin.Name(), status)
			break
		}
	}
	state := framework.NewCycleState()
	passed, statuses := bench.filter(ctx, state, world, nodes, given)
	scored := passed
	if request.ScoreAll {
		scored = nodes
	}
	if len(scored) > 0 {
		if err := bench.score(ctx, state, world, scored, request.Raw, given); err != nil {
			return nil, err
		}
	}
	given.Feasible = len(passed)
	if err := bench.decideVolumes(ctx, world, passed, given); err != nil {
		return nil, err
	}
	if request.Preemption && statuses != nil && len(nodes) > 0 && len(passed) == 0 {
		if err := bench.preempt(ctx, state, world, statuses, given); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(given.Nodes, func(a, b nodeAnswer) int { return cmp.Compare(a.Name, b.Name) })
	given.Best = best(given.Nodes)
	return given, nil
}

// filter records every node's verdict and returns the nodes that passed, and the statuses for the PostFilter plugins: nil
// after an error, with which kube-scheduler ends the attempt.
func (b *bench) filter(ctx context.Context, state fwk.CycleState, world *world, nodes []fwk.NodeInfo, given *answer) ([]fwk.NodeInfo, *framework.NodeToStatus) {
	statuses := framework.NewDefaultNodeToStatus()
	narrowed, status, narrowing := b.framework.RunPreFilterPlugins(ctx, state, world.pod)
	given.NarrowedBy = sets.List(narrowing)
	given.SkippedFilter = sets.List(state.GetSkipFilterPlugins())
	narrowedBy := strings.Join(given.NarrowedBy, ",")
	if !status.IsSuccess() {
		given.PreFilter = rejectionBy(cmp.Or(status.Plugin(), narrowedBy), status)
		for _, node := range nodes {
			given.Nodes = append(given.Nodes, refusal(node.Node().Name, given.PreFilter))
		}
		if !status.IsRejected() {
			return nil, nil
		}
		statuses.SetAbsentNodesStatus(status)
		return nil, statuses
	}
	outside := &rejection{
		Verdict: fwk.UnschedulableAndUnresolvable.String(),
		Plugin:  narrowedBy,
		Reasons: []string{fmt.Sprintf("node(s) didn't satisfy plugin(s) %v", given.NarrowedBy)},
	}
	if !narrowed.AllNodes() {
		statuses.SetAbsentNodesStatus(fwk.NewStatus(fwk.UnschedulableAndUnresolvable, outside.Reasons...))
	}
	var passed []fwk.NodeInfo
	failed := false
	for _, node := range nodes {
		name := node.Node().Name
		if !narrowed.AllNodes() && !narrowed.NodeNames.Has(name) {
			given.Nodes = append(given.Nodes, refusal(name, outside))
			continue
		}
		status := b.framework.RunFilterPluginsWithNominatedPods(ctx, state, world.pod, node)
		if !status.IsSuccess() {
			given.Nodes = append(given.Nodes, refusal(name, rejectionBy(status.Plugin(), status)))
			statuses.Set(name, status)
			failed = failed || !status.IsRejected()
			continue
		}
		given.Nodes = append(given.Nodes, nodeAnswer{Name: name, Verdict: feasible})
		passed = append(passed, node)
	}
	if failed {
		return passed, nil
	}
	return passed, statuses
}

// score records the scores of the given nodes.
func (b *bench) score(ctx context.Context, state fwk.CycleState, world *world, nodes []fwk.NodeInfo, raw bool, given *answer) error {
	if status := b.framework.RunPreScorePlugins(ctx, state, world.pod, nodes); !status.IsSuccess() {
		return status.AsError()
	}
	given.SkippedScore = sets.List(state.GetSkipScorePlugins())
	scores, status := b.framework.RunScorePlugins(ctx, state, world.pod, nodes)
	if !status.IsSuccess() {
		return status.AsError()
	}
	byName := map[string]*nodeAnswer{}
	for index := range given.Nodes {
		byName[given.Nodes[index].Name] = &given.Nodes[index]
	}
	for index, of := range scores {
		node := byName[of.Name]
		node.Total = &scores[index].TotalScore
		node.Scores = map[string]int64{}
		for _, part := range of.Scores {
			node.Scores[part.Name] = part.Score / b.weights[part.Name]
		}
		if !raw {
			continue
		}
		node.Raw = map[string]int64{}
		for _, part := range of.Scores {
			plugin, ok := b.plugins[part.Name].(fwk.ScorePlugin)
			if !ok {
				return fmt.Errorf("plugin %s scores but is not a score plugin", part.Name)
			}
			score, status := plugin.Score(ctx, state, world.pod, nodes[index])
			if !status.IsSuccess() {
				return status.AsError()
			}
			node.Raw[part.Name] = score
		}
	}
	return nil
}

// rejectionBy sorts the reasons, because NodeResourcesFit returns those of extended resources in Go map order.
func rejectionBy(plugin string, status *fwk.Status) *rejection {
	return &rejection{Verdict: status.Code().String(), Plugin: plugin, Reasons: slices.Sorted(slices.Values(status.Reasons()))}
}

func refusal(node string, by *rejection) nodeAnswer {
	return nodeAnswer{
		Name:    node,
		Verdict: by.Verdict,
		Plugin:  by.Plugin,
		Reason:  strings.Join(by.Reasons, ", "),
		Reasons: by.Reasons,
	}
}

func best(nodes []nodeAnswer) []string {
	names := []string{}
	var highest int64
	for _, node := range nodes {
		if node.Verdict != feasible || node.Total == nil {
			continue
		}
		if len(names) > 0 && *node.Total < highest {
			continue
		}
		if len(names) > 0 && *node.Total > highest {
			names = names[:0]
		}
		highest = *node.Total
		names = append(names, node.Name)
	}
	return names
}
