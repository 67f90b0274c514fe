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
