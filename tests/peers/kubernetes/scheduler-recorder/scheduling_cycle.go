package main

import (
	"cmp"
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

func (p *plugin) PreEnqueue(_ context.Context, pod *corev1.Pod) *fwk.Status {
	return p.answer(atPreEnqueue, pod, "").status()
}

func (p *plugin) PreFilter(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, _ []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	return nil, p.answer(atPreFilter, pod, "").status()
}

func (p *plugin) PreFilterExtensions() fwk.PreFilterExtensions {
	return nil
}

func (p *plugin) Filter(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, node fwk.NodeInfo) *fwk.Status {
	return p.answer(atFilter, pod, node.Node().Name).status()
}

func (p *plugin) PostFilter(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, _ fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	given := p.answer(atPostFilter, pod, "")
	if !given.nominates {
		return nil, given.status()
	}
	nodes, err := p.handle.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return nil, fwk.AsStatus(err)
	}
	// There is at least one node: without any, PostFilter is not called.
	nominated := slices.MinFunc(nodes, func(a, b fwk.NodeInfo) int { return cmp.Compare(a.Node().Name, b.Node().Name) })
	return framework.NewPostFilterResultWithNominatedNode(nominated.Node().Name), nil
}

func (p *plugin) PreScore(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, _ []fwk.NodeInfo) *fwk.Status {
	return p.answer(atPreScore, pod, "").status()
}

func (p *plugin) Score(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, node fwk.NodeInfo) (int64, *fwk.Status) {
	given := p.answer(atScore, pod, node.Node().Name)
	return given.score, given.status()
}

func (p *plugin) ScoreExtensions() fwk.ScoreExtensions {
	return p
}

// NormalizeScore gives the alphabetically first node the highest score and the others the lowest. A score out of range
// stays, because kube-scheduler checks the range after this call.
func (p *plugin) NormalizeScore(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, scores fwk.NodeScoreList) *fwk.Status {
	status := p.answer(atNormalizeScore, pod, "").status()
	if slices.ContainsFunc(scores, func(score fwk.NodeScore) bool { return score.Score > fwk.MaxScore }) {
		return status
	}
	best := 0
	for index := range scores {
		scores[index].Score = fwk.MinScore
		if scores[index].Name < scores[best].Name {
			best = index
		}
	}
	if len(scores) > 0 {
		scores[best].Score = fwk.MaxScore
	}
	return status
}

func (p *plugin) Reserve(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, node string) *fwk.Status {
	return p.answer(atReserve, pod, node).status()
}

func (p *plugin) Unreserve(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, node string) {
	p.answer(atUnreserve, pod, node)
	p.settle(ctx, state, pod, node)
}

func (p *plugin) Permit(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, node string) (*fwk.Status, time.Duration) {
	given := p.answer(atPermit, pod, node)
	switch pod.Labels[scenarioLabel] {
	case allower:
		p.handle.IterateOverWaitingPods(func(waiting fwk.WaitingPod) {
			scenario := waiting.GetPod().Labels[scenarioLabel]
			if scenario == permitWaitsThenAllowed || scenario == permitWaitsForBoth {
				// Has no effect on a pod that does not wait for this plugin.
				waiting.Allow(p.name)
			}
		})
	case rejecter:
		if p.name != first {
			break
		}
		p.handle.IterateOverWaitingPods(func(waiting fwk.WaitingPod) {
			if waiting.GetPod().Labels[scenarioLabel] == permitWaitsThenRejected {
				waiting.Reject(p.name, "rejected by pod "+pod.Name)
			}
		})
	}
	return given.status(), given.wait
}
