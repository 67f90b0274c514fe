package main

import (
	"context"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/volumebinding"
)

// decideVolumes records, for each feasible node, the volumes that the pod's claims would be bound to and the claims for
// which volumes would be provisioned. It asks the plugin's binder again, because the plugin's own state is private.
func (b *bench) decideVolumes(ctx context.Context, world *world, passed []fwk.NodeInfo, given *answer) error {
	plugin, ok := b.plugins[names.VolumeBinding].(*volumebinding.VolumeBinding)
	if !ok || len(passed) == 0 || !hasClaims(world.pod) {
		return nil
	}
	logger := klog.FromContext(ctx)
	claims, err := plugin.Binder.GetPodVolumeClaims(logger, world.pod)
	if err != nil {
		return fmt.Errorf("the pod's claims: %w", err)
	}
	byName := map[string]*nodeAnswer{}
	for index := range given.Nodes {
		byName[given.Nodes[index].Name] = &given.Nodes[index]
	}
	for _, node := range passed {
		volumes, reasons, err := plugin.Binder.FindPodVolumes(logger, world.pod, claims, node.Node())
		if err != nil {
			return fmt.Errorf("the pod's volumes on %s: %w", node.Node().Name, err)
		}
		if len(reasons) > 0 {
			return fmt.Errorf("the pod's volumes on %s: rejected on the second look: %v", node.Node().Name, reasons)
		}
		if len(volumes.StaticBindings)+len(volumes.DynamicProvisions) == 0 {
			continue
		}
		made := &volumesAnswer{Bind: map[string]boundVolume{}, Provision: []string{}}
		for _, binding := range volumes.StaticBindings {
			fields := reflect.ValueOf(binding).Elem()
			claim := (*corev1.PersistentVolumeClaim)(fields.FieldByName("pvc").UnsafePointer())
			volume := (*corev1.PersistentVolume)(fields.FieldByName("pv").UnsafePointer())
			made.Bind[claim.Name] = boundVolume{Volume: volume.Name, Capacity: binding.StorageResource().Capacity}
		}
		for _, provision := range volumes.DynamicProvisions {
			made.Provision = append(made.Provision, provision.PVC.Name)
		}
		byName[node.Node().Name].Volumes = made
	}
	return nil
}

func hasClaims(pod *corev1.Pod) bool {
	for _, volume := range pod.Spec.Volumes {
		if volume.PersistentVolumeClaim != nil || volume.Ephemeral != nil {
			return true
		}
	}
	return false
}
