package main

import (
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/apps/install" // defaults of the apps group
	_ "k8s.io/kubernetes/pkg/apis/core/install" // defaults of the core group
	kjson "sigs.k8s.io/json"
)

// request is one line of the input. Objects are as the API shows them; apiVersion and kind may be left out.
type request struct {
	ID                     json.RawMessage   `json:"id,omitempty"`
	Nodes                  []json.RawMessage `json:"nodes,omitempty"`
	Namespaces             []json.RawMessage `json:"namespaces,omitempty"`
	Pods                   []json.RawMessage `json:"pods,omitempty"`
	Services               []json.RawMessage `json:"services,omitempty"`
	ReplicaSets            []json.RawMessage `json:"replicaSets,omitempty"`
	StatefulSets           []json.RawMessage `json:"statefulSets,omitempty"`
	ReplicationControllers []json.RawMessage `json:"replicationControllers,omitempty"`
	// The pod to be placed. One of the same namespace and name among Pods is taken for the same pod and left out.
	Pod json.RawMessage `json:"pod"`
	// A KubeSchedulerConfiguration, YAML or JSON, as text. Without it: the release's default profile.
	Config string `json:"config,omitempty"`
	// Only these plugins, in the order and with the weights of the profile. Without it: all of them.
	Plugins []string `json:"plugins,omitempty"`
	// Score every node, also those that the filters refuse.
	ScoreAll bool `json:"scoreAll,omitempty"`
	// Also answer each plugin's score before normalisation.
	Raw bool `json:"raw,omitempty"`
	// Also answer what the API server's validation says against the objects.
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
	identify(pod)
	world.pod = pod
	others := world.pods[:0]
	for _, other := range world.pods {
		identify(other)
		if other.Namespace != pod.Namespace || other.Name != pod.Name {
			others = append(others, other)
		}
	}
	world.pods = others
	return world, nil
}

// identify gives a pod what the API server gives every pod and the scheduler's cache relies on.
func identify(pod *corev1.Pod) {
	if pod.Namespace == "" {
		pod.Namespace = corev1.NamespaceDefault
	}
	if pod.UID == "" {
		pod.UID = types.UID(pod.Namespace + "/" + pod.Name)
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

// strictly reads JSON as the API server does with fieldValidation=Strict: a field that does not exist is an error, so
// that a misspelt field cannot make two programs agree on a world that neither of them saw.
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
