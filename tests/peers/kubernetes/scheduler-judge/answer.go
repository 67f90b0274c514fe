package main

import "encoding/json"

// answer is one line of the output: the JSON of `bridger explain -o json`, plus details.
type answer struct {
	ID json.RawMessage `json:"id,omitempty"`

	Pod string `json:"pod"`
	// Sorted by name.
	Nodes    []nodeAnswer `json:"nodes"`
	Feasible int          `json:"feasible"`
	// All nodes with the highest total, sorted by name.
	Best []string `json:"best"`

	// The scheduler profile used.
	Profile string `json:"profile,omitempty"`
	// Set when a plugin keeps the pod out of the active queue (scheduling gates). The other fields are filled in
	// regardless.
	PreEnqueue *rejection `json:"preEnqueue,omitempty"`
	// Set when PreFilter rejected the pod for all nodes.
	PreFilter *rejection `json:"preFilter,omitempty"`
	// The plugins whose PreFilter restricted the set of nodes, sorted by name.
	NarrowedBy []string `json:"narrowedBy,omitempty"`
	// The plugins that skipped Filter or Score, sorted by name.
	SkippedFilter []string `json:"skippedFilter,omitempty"`
	SkippedScore  []string `json:"skippedScore,omitempty"`
	// The weights of the score plugins.
	Weights map[string]int64 `json:"weights,omitempty"`
	// What preemption would do, if requested. Only if there are nodes, none of them is feasible, and no plugin returned
	// an error.
	Preemption *preemptionAnswer `json:"preemption,omitempty"`
	// The API server's validation errors, one entry each, if requested.
	Invalid []string `json:"invalid,omitempty"`
}

type nodeAnswer struct {
	Name string `json:"name"`
	// Feasible, Unschedulable, UnschedulableAndUnresolvable or Error.
	Verdict string `json:"verdict"`
	// The plugin that rejected the node; several, comma-joined, if PreFilter restricted the set of nodes.
	Plugin string `json:"plugin,omitempty"`
	// The sorted reasons, comma-joined and as a list.
	Reason  string   `json:"reason,omitempty"`
	Reasons []string `json:"reasons,omitempty"`

	// Weighted sum. Only scored nodes have one.
	Total *int64 `json:"total,omitempty"`
	// Normalised, before weight. A plugin that skipped is absent.
	Scores map[string]int64 `json:"scores,omitempty"`
	// Before normalisation, if requested.
	Raw map[string]int64 `json:"raw,omitempty"`

	// Only on feasible nodes, and only if the pod has claims without a volume.
	Volumes *volumesAnswer `json:"volumes,omitempty"`
}

// preemptionAnswer has the fields that `bridger explain -o json` has in `preemption`, plus details.
type preemptionAnswer struct {
	Eligible bool `json:"eligible"`
	// Sorted by node.
	Candidates []candidateAnswer `json:"candidates"`
	// One of the nodes that upstream may choose, null if there is no candidate.
	Node *string `json:"node"`

	// All nodes that upstream may choose, sorted by name.
	Best []string `json:"best"`
	// The nodes that were tried and are no candidates, sorted by name.
	Rejected []nodeAnswer `json:"rejected,omitempty"`
	// The plugin's message if there is no candidate.
	Message string `json:"message,omitempty"`
	// Whether the pod loses its nominated node, if it has one.
	ClearsNomination bool `json:"clearsNomination,omitempty"`
	// Set when another plugin's PostFilter ends the attempt before DefaultPreemption is called. The other fields are
	// filled in regardless.
	Blocked *rejection `json:"blocked,omitempty"`
}

type candidateAnswer struct {
	Node string `json:"node"`
	// The most important one first.
	Victims       []string `json:"victims"`
	PDBViolations int64    `json:"pdbViolations"`
	// The pods on the node with a lower priority: the victims and those that were spared.
	LowerPriority int `json:"lowerPriority"`
}

// volumesAnswer is what VolumeBinding decided for a node.
type volumesAnswer struct {
	// By claim.
	Bind map[string]boundVolume `json:"bind,omitempty"`
	// The claims, in the order in which they were considered.
	Provision []string `json:"provision,omitempty"`
}

type boundVolume struct {
	Volume   string `json:"volume"`
	Capacity int64  `json:"capacity"`
}

type rejection struct {
	Verdict string   `json:"verdict"`
	Plugin  string   `json:"plugin"`
	Reasons []string `json:"reasons"`
}

// failure is the reply to a request that cannot be judged.
type failure struct {
	ID    json.RawMessage `json:"id,omitempty"`
	Error string          `json:"error"`
}
