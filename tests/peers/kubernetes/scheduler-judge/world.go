package main

import (
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"    // defaults of the apps group
	_ "k8s.io/kubernetes/pkg/apis/core/install"    // defaults of the core group
	_ "k8s.io/kubernetes/pkg/apis/policy/install"  // defaults of the policy group
	_ "k8s.io/kubernetes/pkg/apis/storage/install" // defaults of the storage group
	kjson "sigs.k8s.io/json"
)

// request is one line of the input. Objects have the API's format; apiVersion and kind are optional.
type request struct {
	ID                     json.RawMessage   `json:"id,omitempty"`
	Nodes                  []json.RawMessage `json:"nodes,omitempty"`
	Namespaces             []json.RawMessage `json:"namespaces,omitempty"`
	Pods                   []json.RawMessage `json:"pods,omitempty"`
	Services               []json.RawMessage `json:"services,omitempty"`
	ReplicaSets            []json.RawMessage `json:"replicaSets,omitempty"`
	StatefulSets           []json.RawMessage `json:"statefulSets,omitempty"`
	ReplicationControllers []json.RawMessage `json:"replicationControllers,omitempty"`
	PodDisruptionBudgets   []json.RawMessage `json:"podDisruptionBudgets,omitempty"`
	PersistentVolumeClaims []json.RawMessage `json:"persistentVolumeClaims,omitempty"`
	PersistentVolumes      []json.RawMessage `json:"persistentVolumes,omitempty"`
	StorageClasses         []json.RawMessage `json:"storageClasses,omitempty"`
	CSINodes               []json.RawMessage `json:"csiNodes,omitempty"`
	CSIDrivers             []json.RawMessage `json:"csiDrivers,omitempty"`
	CSIStorageCapacities   []json.RawMessage `json:"csiStorageCapacities,omitempty"`
	VolumeAttachments      []json.RawMessage `json:"volumeAttachments,omitempty"`
	// The pod to place. A pod with the same namespace and name in Pods is treated as the same pod and ignored.
	Pod json.RawMessage `json:"pod"`
	// The text of a KubeSchedulerConfiguration, YAML or JSON. If empty, the release's default profile applies.
	Config string `json:"config,omitempty"`
	// Run only these plugins, in the order and with the weights of the profile. If empty, run all of them.
	Plugins []string `json:"plugins,omitempty"`
	// Score every node, also those that the filters reject.
	ScoreAll bool `json:"scoreAll,omitempty"`
	// Also return each plugin's score before normalisation.
	Raw bool `json:"raw,omitempty"`
	// Also return what preemption would do if no node is feasible.
	Preemption bool `json:"preemption,omitempty"`
	// Also return the API server's validation errors for the objects.
	Validate bool `json:"validate,omitempty"`
}

// world is a request's objects with the API's defaults filled in.
type world struct {
	nodes                  []*corev1.Node
	namespaces             []*corev1.Namespace
	pods                   []*corev1.Pod
	services               []*corev1.Service
	replicaSets            []*appsv1.ReplicaSet
	statefulSets           []*appsv1.StatefulSet
	replicationControllers []*corev1.ReplicationController
	podDisruptionBudgets   []*policyv1.PodDisruptionBudget
	persistentVolumeClaims []*corev1.PersistentVolumeClaim
	persistentVolumes      []*corev1.PersistentVolume
	storageClasses         []*storagev1.StorageClass
	csiNodes               []*storagev1.CSINode
	csiDrivers             []*storagev1.CSIDriver
	csiStorageCapacities   []*storagev1.CSIStorageCapacity
	volumeAttachments      []*storagev1.VolumeAttachment
	pod                    *corev1.Pod
}

func readWorld(line []byte, into *request) (*world, error) {
	if err := strictly(line, into); err != nil {
		return nil, fmt.Errorf("reading the request: %w", err)
	}
	if len(into.Pod) == 0 {
		return nil, fmt.Errorf("reading the request: there is no pod to place")
	}
	world := &world{}
	lists := []error{
		readList("nodes", into.Nodes, &world.nodes),
		readList("namespaces", into.Namespaces, &world.namespaces),
		readList("pods", into.Pods, &world.pods),
		readList("services", into.Services, &world.services),
		readList("replicaSets", into.ReplicaSets, &world.replicaSets),
		readList("statefulSets", into.StatefulSets, &world.statefulSets),
		readList("replicationControllers", into.ReplicationControllers, &world.replicationControllers),
		readList("podDisruptionBudgets", into.PodDisruptionBudgets, &world.podDisruptionBudgets),
		readList("persistentVolumeClaims", into.PersistentVolumeClaims, &world.persistentVolumeClaims),
		readList("persistentVolumes", into.PersistentVolumes, &world.persistentVolumes),
		readList("storageClasses", into.StorageClasses, &world.storageClasses),
		readList("csiNodes", into.CSINodes, &world.csiNodes),
		readList("csiDrivers", into.CSIDrivers, &world.csiDrivers),
		readList("csiStorageCapacities", into.CSIStorageCapacities, &world.csiStorageCapacities),
		readList("volumeAttachments", into.VolumeAttachments, &world.volumeAttachments),
	}
	for _, err := range lists {
		if err != nil {
			return nil, err
		}
	}
	pod := &corev1.Pod{}
	if err := readObject(into.Pod, pod); err != nil {
		return nil, fmt.Errorf("pod: %w", err)
	}
	identify(&pod.ObjectMeta)
	world.pod = pod
	for _, claim := range world.persistentVolumeClaims {
		identify(&claim.ObjectMeta)
	}
	for _, budget := range world.podDisruptionBudgets {
		identify(&budget.ObjectMeta)
	}
	for _, capacity := range world.csiStorageCapacities {
		identify(&capacity.ObjectMeta)
	}
	others := world.pods[:0]
	for _, other := range world.pods {
		identify(&other.ObjectMeta)
		if other.Namespace != pod.Namespace || other.Name != pod.Name {
			others = append(others, other)
		}
	}
	world.pods = others
	return world, nil
}

// identify sets the namespace and UID that the API server sets on every object of a namespace. The scheduler's cache
// relies on those of pods, the owners of ephemeral volumes and the reservations of volumes on those of claims.
func identify(object *metav1.ObjectMeta) {
	if object.Namespace == "" {
		object.Namespace = corev1.NamespaceDefault
	}
	if object.UID == "" {
		object.UID = types.UID(object.Namespace + "/" + object.Name)
	}
}

func readList[T any, P interface {
	*T
	runtime.Object
}](what string, items []json.RawMessage, into *[]P) error {
	for index, item := range items {
		object := P(new(T))
		if err := readObject(item, object); err != nil {
			return fmt.Errorf("%s[%d]: %w", what, index, err)
		}
		*into = append(*into, object)
	}
	return nil
}

func readObject(data []byte, into runtime.Object) error {
	if err := strictly(data, into); err != nil {
		return err
	}
	legacyscheme.Scheme.Default(into)
	return nil
}

// strictly reads JSON as the API server does with fieldValidation=Strict: an unknown field is an error. Otherwise two
// programs could agree on a world only because both ignored a misspelt field.
func strictly(data []byte, into any) error {
	warnings, err := kjson.UnmarshalStrict(data, into)
	if err != nil {
		return err
	}
	if len(warnings) > 0 {
		return warnings[0]
	}
	return nil
}
