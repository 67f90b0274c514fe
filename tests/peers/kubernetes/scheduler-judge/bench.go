package main

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	resourceslicetracker "k8s.io/dynamic-resource-allocation/resourceslice/tracker"
	"k8s.io/klog/v2"
	configv1 "k8s.io/kube-scheduler/config/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/validation"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodevolumelimits"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/util/assumecache"
)

// bench is one profile's framework, built as kube-scheduler builds it and reused for many worlds. Worlds do not affect
// each other: the snapshot and the contents of the listers are replaced completely.
type bench struct {
	framework framework.Framework
	informers informers.SharedInformerFactory
	snapshot  *currentSnapshot
	nominator *nominator
	// The plugin instances, because the framework returns only normalised and weighted scores.
	plugins map[string]fwk.Plugin
	weights map[string]int64
	stop    context.CancelFunc
}

// readProfiles decodes a configuration as kube-scheduler does, with its defaults and its validation.
func readProfiles(text string) ([]config.KubeSchedulerProfile, error) {
	if text == "" {
		var versioned configv1.KubeSchedulerConfiguration
		scheme.Scheme.Default(&versioned)
		var internal config.KubeSchedulerConfiguration
		if err := scheme.Scheme.Convert(&versioned, &internal, nil); err != nil {
			return nil, fmt.Errorf("config: %w", err)
		}
		return internal.Profiles, nil
	}
	object, kind, err := scheme.Codecs.UniversalDecoder().Decode([]byte(text), nil, nil)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	internal, ok := object.(*config.KubeSchedulerConfiguration)
	if !ok {
		return nil, fmt.Errorf("config: this is a %s, not a KubeSchedulerConfiguration", kind)
	}
	// The conversion drops this field, and the validation requires it.
	internal.APIVersion = kind.GroupVersion().String()
	if err := validation.ValidateKubeSchedulerConfiguration(internal); err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	return internal.Profiles, nil
}

// only keeps the named plugins of a profile, and the two that every framework requires.
func only(profile config.KubeSchedulerProfile, wanted []string) (config.KubeSchedulerProfile, error) {
	if len(wanted) == 0 {
		return profile, nil
	}
	known := plugins.NewInTreeRegistry()
	for _, name := range wanted {
		if _, ok := known[name]; !ok {
			return profile, fmt.Errorf("plugins: there is none named %q", name)
		}
	}
	keep := func(set *config.PluginSet) {
		set.Enabled = slices.DeleteFunc(slices.Clone(set.Enabled), func(plugin config.Plugin) bool {
			return plugin.Name != names.PrioritySort && plugin.Name != names.DefaultBinder && !slices.Contains(wanted, plugin.Name)
		})
	}
	kept := profile
	kept.Plugins = profile.Plugins.DeepCopy()
	for _, set := range []*config.PluginSet{
		&kept.Plugins.MultiPoint, &kept.Plugins.PreEnqueue, &kept.Plugins.PreFilter, &kept.Plugins.Filter,
		&kept.Plugins.PostFilter, &kept.Plugins.PreScore, &kept.Plugins.Score, &kept.Plugins.Reserve,
		&kept.Plugins.Permit, &kept.Plugins.PreBind, &kept.Plugins.PostBind,
	} {
		keep(set)
	}
	return kept, nil
}

func newBench(profile config.KubeSchedulerProfile) (*bench, error) {
	ctx, stop := context.WithCancel(context.Background())
	made := &bench{
		snapshot:  &currentSnapshot{Snapshot: internalcache.NewEmptySnapshot()},
		nominator: &nominator{},
		plugins:   map[string]fwk.Plugin{},
		weights:   map[string]int64{},
		stop:      stop,
	}
	// The informers are never started: their stores are filled directly, so there is nothing to wait for.
	client := fake.NewClientset()
	made.informers = scheduler.NewInformerFactory(client, 0)
	draManager, err := newDRAManager(ctx, client, made.informers)
	if err != nil {
		stop()
		return nil, err
	}
	made.framework, err = frameworkruntime.NewFramework(ctx, made.capture(plugins.NewInTreeRegistry()), &profile,
		frameworkruntime.WithComponentConfigVersion(configv1.SchemeGroupVersion.String()),
		frameworkruntime.WithClientSet(client),
		frameworkruntime.WithInformerFactory(made.informers),
		frameworkruntime.WithSharedDRAManager(draManager),
		frameworkruntime.WithSharedCSIManager(nodevolumelimits.NewCSIManager(made.informers.Storage().V1().CSINodes().Lister())),
		frameworkruntime.WithSnapshotSharedLister(made.snapshot),
		frameworkruntime.WithPodNominator(made.nominator),
		frameworkruntime.WithEventRecorder(events.NewEventBroadcasterAdapter(client).NewRecorder(profile.SchedulerName)),
		// Worlds are small: parallelism would cost more than it saves.
		frameworkruntime.WithParallelism(1),
		frameworkruntime.WithWaitingPods(frameworkruntime.NewWaitingPodsMap()),
		frameworkruntime.WithPodsInPreBind(frameworkruntime.NewPodsInPreBindMap()),
	)
	if err != nil {
		stop()
		return nil, fmt.Errorf("building the framework: %w", err)
	}
	for _, plugin := range made.framework.ListPlugins().Score.Enabled {
		made.weights[plugin.Name] = int64(plugin.Weight)
	}
	return made, nil
}

// newDRAManager creates the manager that the DynamicResources plugin requires. It stays empty: worlds have no claims.
func newDRAManager(ctx context.Context, client *fake.Clientset, informers informers.SharedInformerFactory) (fwk.SharedDRAManager, error) {
	enabled := utilfeature.DefaultFeatureGate.Enabled
	claims := assumecache.NewAssumeCache(klog.FromContext(ctx), informers.Resource().V1().ResourceClaims().Informer(), "ResourceClaim", "", nil)
	options := resourceslicetracker.Options{
		EnableDeviceTaintRules:   enabled(features.DRADeviceTaintRules),
		EnableConsumableCapacity: enabled(features.DRAConsumableCapacity),
		SliceInformer:            informers.Resource().V1().ResourceSlices(),
		KubeClient:               client,
	}
	if options.EnableDeviceTaintRules {
		options.TaintInformer = informers.Resource().V1beta2().DeviceTaintRules()
		options.ClassInformer = informers.Resource().V1().DeviceClasses()
	}
	tracker, err := resourceslicetracker.StartTracker(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("starting the resource slice tracker: %w", err)
	}
	return dynamicresources.NewDRAManager(ctx, claims, tracker, informers), nil
}

// capture wraps every factory to keep a reference to the plugins it creates.
func (b *bench) capture(registry frameworkruntime.Registry) frameworkruntime.Registry {
	wrapped := frameworkruntime.Registry{}
	for name, factory := range registry {
		wrapped[name] = func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
			plugin, err := factory(ctx, args, handle)
			if err == nil {
				b.plugins[name] = plugin
			}
			return plugin, err
		}
	}
	return wrapped
}

// seat replaces the previous world with this one.
func (b *bench) seat(ctx context.Context, world *world) error {
	snapshot, err := takeSnapshot(ctx, world)
	if err != nil {
		return err
	}
	b.snapshot.Snapshot = snapshot
	if b.nominator.byNode, err = nominated(world); err != nil {
		return err
	}
	core, apps, storage := b.informers.Core().V1(), b.informers.Apps().V1(), b.informers.Storage().V1()
	for _, err := range []error{
		fill(core.Namespaces().Informer(), world.namespaces),
		fill(core.Services().Informer(), world.services),
		fill(core.ReplicationControllers().Informer(), world.replicationControllers),
		fill(apps.ReplicaSets().Informer(), world.replicaSets),
		fill(apps.StatefulSets().Informer(), world.statefulSets),
		fill(core.Nodes().Informer(), world.nodes),
		fill(core.Pods().Informer(), append([]*corev1.Pod{world.pod}, world.pods...)),
		fill(b.informers.Policy().V1().PodDisruptionBudgets().Informer(), world.podDisruptionBudgets),
		fill(core.PersistentVolumeClaims().Informer(), world.persistentVolumeClaims),
		fill(core.PersistentVolumes().Informer(), world.persistentVolumes),
		fill(storage.StorageClasses().Informer(), world.storageClasses),
		fill(storage.CSINodes().Informer(), world.csiNodes),
		fill(storage.CSIDrivers().Informer(), world.csiDrivers),
		fill(storage.CSIStorageCapacities().Informer(), world.csiStorageCapacities),
		fill(storage.VolumeAttachments().Informer(), world.volumeAttachments),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

type listed interface {
	*corev1.Namespace | *corev1.Service | *corev1.ReplicationController | *appsv1.ReplicaSet | *appsv1.StatefulSet |
		*corev1.Node | *corev1.Pod | *policyv1.PodDisruptionBudget | *corev1.PersistentVolumeClaim |
		*corev1.PersistentVolume | *storagev1.StorageClass | *storagev1.CSINode | *storagev1.CSIDriver |
		*storagev1.CSIStorageCapacity | *storagev1.VolumeAttachment
}

func fill[T listed](informer cache.SharedIndexInformer, objects []T) error {
	items := make([]any, len(objects))
	for index, object := range objects {
		items[index] = object
	}
	return informer.GetIndexer().Replace(items, "1")
}

// takeSnapshot runs the objects through the scheduler's own cache, in the order given.
func takeSnapshot(ctx context.Context, world *world) (*internalcache.Snapshot, error) {
	logger := klog.FromContext(ctx)
	scheduled := internalcache.New(ctx, nil, utilfeature.DefaultFeatureGate.Enabled(features.GenericWorkload))
	for _, node := range world.nodes {
		scheduled.AddNode(logger, node)
	}
	for _, pod := range world.pods {
		// kube-scheduler's watch excludes finished pods. A pod without a node is in its queue, not in its cache.
		if pod.Spec.NodeName == "" || finished(pod) {
			continue
		}
		if err := scheduled.AddPod(logger, pod); err != nil {
			return nil, fmt.Errorf("pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
	}
	snapshot := internalcache.NewEmptySnapshot()
	if err := scheduled.UpdateSnapshot(logger, snapshot); err != nil {
		return nil, fmt.Errorf("taking the snapshot: %w", err)
	}
	return snapshot, nil
}

func finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
