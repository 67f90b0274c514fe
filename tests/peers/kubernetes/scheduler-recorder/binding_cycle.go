package main

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

func (p *plugin) PreBindPreFlight(_ context.Context, state fwk.CycleState, pod *corev1.Pod, node string) (*fwk.PreBindPreFlightResult, *fwk.Status) {
	status := p.answer(atPreBindPreFlight, pod, node).status()
	if status.IsSuccess() && isRecorded(pod) {
		state.Write(announcedKey, announced{})
	}
	// Without AllowParallel, the PreBinds run one after the other.
	return nil, status
}

func (p *plugin) PreBind(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, node string) *fwk.Status {
	return p.answer(atPreBind, pod, node).status()
}

func (p *plugin) Bind(ctx context.Context, _ fwk.CycleState, pod *corev1.Pod, node string) *fwk.Status {
	status := p.decide(atBind, pod).status()
	if status.IsSuccess() {
		binding := &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
			Target:     corev1.ObjectReference{Kind: "Node", Name: node},
		}
		// AsStatus returns nil, which is Success, for no error.
		status = fwk.AsStatus(p.handle.ClientSet().CoreV1().Pods(pod.Namespace).Bind(ctx, binding, metav1.CreateOptions{}))
	}
	p.record(atBind, pod, node, status.Code())
	return status
}

func (p *plugin) PostBind(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, node string) {
	p.answer(atPostBind, pod, node)
}

// announced marks the state of an attempt whose binding cycle writes status.nominatedNodeName.
type announced struct{}

const announcedKey fwk.StateKey = "scheduler-recorder/announced"

func (a announced) Clone() fwk.StateData {
	return a
}

const (
	settleEvery = 5 * time.Millisecond
	settleMax   = 5 * time.Second
	// The informer's cache changes before the event handlers run.
	settleHandlers = 100 * time.Millisecond
)

// settle waits until the informer's cache shows the nomination that this binding cycle has written.
//
// If a PreBindPreFlight answers Success, kube-scheduler writes status.nominatedNodeName before the pod waits and before
// PreBind. After a failure it clears the field, but only if its cache shows it. A failure within a millisecond is
// handled before the event of the write arrives: the nomination then stays, and the next attempt filters the nominated
// node only and scores none. Whether this happens is a matter of chance, and a record that depends on chance is of no
// use. The pod is still assumed while Unreserve runs, so the event has no other effect.
func (p *plugin) settle(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, node string) {
	if _, err := state.Read(announcedKey); err != nil {
		return
	}
	// The Unreserve of the other plugin need not wait again.
	state.Delete(announcedKey)
	pods := p.handle.SharedInformerFactory().Core().V1().Pods().Lister().Pods(pod.Namespace)
	gone := false
	err := wait.PollUntilContextTimeout(ctx, settleEvery, settleMax, true, func(context.Context) (bool, error) {
		cached, err := pods.Get(pod.Name)
		gone = err != nil || cached.UID != pod.UID
		return gone || cached.Status.NominatedNodeName == node, nil
	})
	if err != nil {
		klog.FromContext(ctx).Error(err, "The nomination was not seen; the next attempt may depend on chance", "pod", klog.KObj(pod), "node", node)
		return
	}
	if !gone {
		time.Sleep(settleHandlers)
	}
}
