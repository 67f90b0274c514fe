package main

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/core"
	corevalidation "k8s.io/kubernetes/pkg/apis/core/validation"
)

// validate returns the errors with which the API server would reject objects. A world with such objects proves nothing
// about a scheduler.
func validate(world *world) []string {
	var faults []string
	note := func(kind, name string, errors field.ErrorList, err error) {
		if err != nil {
			faults = append(faults, fmt.Sprintf("%s %s: %v", kind, name, err))
		}
		for _, fault := range errors {
			faults = append(faults, fmt.Sprintf("%s %s: %v", kind, name, fault))
		}
	}
	for _, node := range world.nodes {
		internal := &core.Node{}
		err := legacyscheme.Scheme.Convert(node, internal, nil)
		note("node", node.Name, corevalidation.ValidateNode(internal), err)
	}
	for _, namespace := range world.namespaces {
		internal := &core.Namespace{}
		err := legacyscheme.Scheme.Convert(namespace, internal, nil)
		note("namespace", namespace.Name, corevalidation.ValidateNamespace(internal), err)
	}
	for _, pod := range append([]*corev1.Pod{world.pod}, world.pods...) {
		internal := &core.Pod{}
		err := legacyscheme.Scheme.Convert(pod, internal, nil)
		options := podutil.GetValidationOptionsFromPodSpecAndMeta(&internal.Spec, nil, &internal.ObjectMeta, nil)
		options.ResourceIsPod = true
		note("pod", pod.Namespace+"/"+pod.Name, corevalidation.ValidatePodCreate(internal, options), err)
	}
	return faults
}
