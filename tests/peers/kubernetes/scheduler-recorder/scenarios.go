package main

import (
	"math"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

const (
	scenarioLabel = "scenario"
	timesLabel    = "times"
)

// The names of the two plugins.
const (
	first  = "First"
	second = "Second"
)

// point is a method of a plugin, as it is named in the records.
type point string

const (
	atPreEnqueue       point = "PreEnqueue"
	atPreFilter        point = "PreFilter"
	atFilter           point = "Filter"
	atPostFilter       point = "PostFilter"
	atPreScore         point = "PreScore"
	atScore            point = "Score"
	atNormalizeScore   point = "NormalizeScore"
	atReserve          point = "Reserve"
	atUnreserve        point = "Unreserve"
	atPermit           point = "Permit"
	atPreBindPreFlight point = "PreBindPreFlight"
	atPreBind          point = "PreBind"
	atBind             point = "Bind"
	atPostBind         point = "PostBind"
)

// deviation is an answer that differs from plain Success. The zero value is plain Success.
type deviation struct {
	plugin string
	at     point
	code   fwk.Code
	// Only at Permit.
	wait time.Duration
	// Only at Score.
	score int64
	// Only at PostFilter.
	nominates bool
}

const (
	allower                 = "allower"
	rejecter                = "rejecter"
	permitWaitsThenAllowed  = "permit-waits-then-allowed"
	permitWaitsThenRejected = "permit-waits-then-rejected"
	permitWaitsForBoth      = "permit-waits-for-both"
)

// The duration of a wait that ends by something else than its timeout.
const waitLong = 60 * time.Second

// scenarios contains every scenario and its deviations; the package comment lists them.
var scenarios = map[string][]deviation{
	"success":          nil,
	allower:            nil,
	rejecter:           nil,
	"pre-filter-error": {{plugin: first, at: atPreFilter, code: fwk.Error}},
	"filter-error":     {{plugin: first, at: atFilter, code: fwk.Error}},
	"filter-refuses-all": {
		{plugin: second, at: atFilter, code: fwk.Unschedulable},
		{plugin: first, at: atPostFilter, code: fwk.Unschedulable},
		{plugin: second, at: atPostFilter, code: fwk.Unschedulable},
	},
	"post-filter-nominates": {
		{plugin: second, at: atFilter, code: fwk.Unschedulable},
		{plugin: first, at: atPostFilter, code: fwk.Success, nominates: true},
		{plugin: second, at: atPostFilter, code: fwk.Unschedulable},
	},
	"post-filter-error": {
		{plugin: second, at: atFilter, code: fwk.Unschedulable},
		{plugin: first, at: atPostFilter, code: fwk.Error},
		{plugin: second, at: atPostFilter, code: fwk.Unschedulable},
	},
	"pre-score-skips":         {{plugin: first, at: atPreScore, code: fwk.Skip}},
	"score-out-of-range":      {{plugin: first, at: atScore, code: fwk.Success, score: fwk.MaxScore + 1}},
	"reserve-fails-in-second": {{plugin: second, at: atReserve, code: fwk.Unschedulable}},
	permitWaitsThenAllowed:    {{plugin: first, at: atPermit, code: fwk.Wait, wait: waitLong}},
	permitWaitsThenRejected:   {{plugin: first, at: atPermit, code: fwk.Wait, wait: waitLong}},
	permitWaitsForBoth: {
		{plugin: first, at: atPermit, code: fwk.Wait, wait: waitLong},
		{plugin: second, at: atPermit, code: fwk.Wait, wait: waitLong},
	},
	"permit-times-out":         {{plugin: first, at: atPermit, code: fwk.Wait, wait: time.Second}},
	"permit-waits-not-at-all":  {{plugin: first, at: atPermit, code: fwk.Wait, wait: 0}},
	"permit-denied":            {{plugin: second, at: atPermit, code: fwk.Unschedulable}},
	"deleted-while-waiting":    {{plugin: first, at: atPermit, code: fwk.Wait, wait: waitLong}},
	"pre-flight-skips":         {{plugin: first, at: atPreBindPreFlight, code: fwk.Skip}},
	"pre-bind-fails":           {{plugin: second, at: atPreBind, code: fwk.Error}},
	"pre-bind-rejects":         {{plugin: second, at: atPreBind, code: fwk.Unschedulable}},
	"bind-declined-then-taken": {{plugin: first, at: atBind, code: fwk.Skip}},
	"bind-fails":               {{plugin: first, at: atBind, code: fwk.Error}},
}

func isRecorded(pod *corev1.Pod) bool {
	_, labelled := pod.Labels[scenarioLabel]
	return labelled
}

// deviationOf looks up what the pod's scenario says about one call.
func deviationOf(pod *corev1.Pod, plugin string, at point) deviation {
	scenario := pod.Labels[scenarioLabel]
	deviations, known := scenarios[scenario]
	if !known {
		// A test that misspells a scenario must not pass.
		klog.Fatalf("pod %s/%s has the unknown scenario %q", pod.Namespace, pod.Name, scenario)
	}
	for _, candidate := range deviations {
		if candidate.plugin == plugin && candidate.at == at {
			return candidate
		}
	}
	return deviation{}
}

// timesMax returns how many times a deviation is answered.
func timesMax(pod *corev1.Pod) int {
	text, limited := pod.Labels[timesLabel]
	if !limited {
		return math.MaxInt
	}
	times, err := strconv.Atoi(text)
	if err != nil {
		klog.Fatalf("pod %s/%s has the label %s=%q, which is not a number", pod.Namespace, pod.Name, timesLabel, text)
	}
	return times
}
