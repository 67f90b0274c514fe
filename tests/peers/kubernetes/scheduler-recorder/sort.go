package main

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"
)

const recorderSortName = "RecorderSort"

// recorderSort sorts as PrioritySort does: by priority, then by the time at which the pod was queued.
type recorderSort struct{}

var _ fwk.QueueSortPlugin = &recorderSort{}

func newRecorderSort(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
	return &recorderSort{}, nil
}

func (s *recorderSort) Name() string {
	return recorderSortName
}

func (s *recorderSort) Less(a, b fwk.QueuedPodInfo) bool {
	priorityA := corev1helpers.PodPriority(a.GetPodInfo().GetPod())
	priorityB := corev1helpers.PodPriority(b.GetPodInfo().GetPod())
	return priorityA > priorityB || (priorityA == priorityB && a.GetTimestamp().Before(b.GetTimestamp()))
}
