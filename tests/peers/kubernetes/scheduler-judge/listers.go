package main

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// currentSnapshot gives the plugins, which keep the lister they were created with, each new world.
type currentSnapshot struct {
	*internalcache.Snapshot
}

var _ fwk.SharedLister = &currentSnapshot{}

// nominator returns the pending pods that an earlier preemption nominated for a node. kube-scheduler keeps these in its
// queue. A world is judged at one moment, so they never change here.
type nominator struct {
	byNode map[string][]fwk.PodInfo
}

var _ fwk.PodNominator = &nominator{}

func nominated(world *world) (map[string][]fwk.PodInfo, error) {
	byNode := map[string][]fwk.PodInfo{}
	for _, pod := range world.pods {
		node := pod.Status.NominatedNodeName
		if node == "" || pod.Spec.NodeName != "" || finished(pod) {
			continue
		}
		info, err := framework.NewPodInfo(pod)
		if err != nil {
			return nil, fmt.Errorf("pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
		byNode[node] = append(byNode[node], info)
	}
	return byNode, nil
}

func (n *nominator) NominatedPodsForNode(node string) []fwk.PodInfo {
	return n.byNode[node]
}

func (n *nominator) AddNominatedPod(klog.Logger, fwk.PodInfo, *fwk.NominatingInfo) {}

func (n *nominator) DeleteNominatedPodIfExists(*corev1.Pod) {}

func (n *nominator) UpdateNominatedPod(klog.Logger, *corev1.Pod, fwk.PodInfo) {}
