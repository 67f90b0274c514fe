package main

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/core"
	corevalidation "k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/apis/policy"
	policyvalidation "k8s.io/kubernetes/pkg/apis/policy/validation"
	"k8s.io/kubernetes/pkg/apis/storage"
	storagevalidation "k8s.io/kubernetes/pkg/apis/storage/validation"
)

// validate returns the errors with which the API server would reject objects. A world with such objects proves nothing
// about a scheduler.
func validate(world *world) []string {
	var faults []string
	faults = check(faults, "node", world.nodes, corevalidation.ValidateNode)
	faults = check(faults, "namespace", world.namespaces, corevalidation.ValidateNamespace)
	faults = check(faults, "pod", append([]*corev1.Pod{world.pod}, world.pods...), func(pod *core.Pod) field.ErrorList {
		options := podutil.GetValidationOptionsFromPodSpecAndMeta(&pod.Spec, nil, &pod.ObjectMeta, nil)
		options.ResourceIsPod = true
		return corevalidation.ValidatePodCreate(pod, options)
	})
	faults = check(faults, "budget", world.podDisruptionBudgets, func(budget *policy.PodDisruptionBudget) field.ErrorList {
		return policyvalidation.ValidatePodDisruptionBudget(budget, policyvalidation.PodDisruptionBudgetValidationOptions{})
	})
	faults = check(faults, "claim", world.persistentVolumeClaims, func(claim *core.PersistentVolumeClaim) field.ErrorList {
		return corevalidation.ValidatePersistentVolumeClaim(claim, corevalidation.ValidationOptionsForPersistentVolumeClaimCreate())
	})
	faults = check(faults, "volume", world.persistentVolumes, func(volume *core.PersistentVolume) field.ErrorList {
		return corevalidation.ValidatePersistentVolume(volume, corevalidation.ValidationOptionsForPersistentVolume(volume, nil))
	})
	faults = check(faults, "storage class", world.storageClasses, storagevalidation.ValidateStorageClass)
	faults = check(faults, "CSI node", world.csiNodes, storagevalidation.ValidateCSINode)
	faults = check(faults, "CSI driver", world.csiDrivers, storagevalidation.ValidateCSIDriver)
	faults = check(faults, "storage capacity", world.csiStorageCapacities, func(capacity *storage.CSIStorageCapacity) field.ErrorList {
		return storagevalidation.ValidateCSIStorageCapacity(capacity, storagevalidation.CSIStorageCapacityValidateOptions{})
	})
	return check(faults, "volume attachment", world.volumeAttachments, storagevalidation.ValidateVolumeAttachment)
}

type named interface {
	runtime.Object
	GetName() string
	GetNamespace() string
}

// check converts objects to the API server's internal type and appends their validation errors.
func check[E named, T any](faults []string, kind string, objects []E, validate func(*T) field.ErrorList) []string {
	for _, object := range objects {
		name := object.GetName()
		if object.GetNamespace() != "" {
			name = object.GetNamespace() + "/" + name
		}
		internal := new(T)
		if err := legacyscheme.Scheme.Convert(object, internal, nil); err != nil {
			faults = append(faults, fmt.Sprintf("%s %s: %v", kind, name, err))
		}
		for _, fault := range validate(internal) {
			faults = append(faults, fmt.Sprintf("%s %s: %v", kind, name, fault))
		}
	}
	return faults
}
