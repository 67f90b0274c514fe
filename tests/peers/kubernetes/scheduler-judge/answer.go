package main

import "encoding/json"

// answer is one line of the output: what `bridger explain -o json` prints, and details beside it.
type answer struct {
	ID json.RawMessage `json:"id,omitempty"`

	Pod string `json:"pod"`
	// By name.
	Nodes    []nodeAnswer `json:"nodes"`
	Feasible int          `json:"feasible"`
	// All nodes with the highest total, by name.
	Best []string `json:"best"`

	// The profile that judged.
	Profile string `json:"profile,omitempty"`
	// Set when a plugin would keep the pod from being tried at all (scheduling gates). The rest is judged regardless.
	PreEnqueue *rejection `json:"preEnqueue,omitempty"`
	// Set when PreFilter rejected the pod for all nodes.
	PreFilter *rejection `json:"preFilter,omitempty"`
	// The plugins that PreFilter narrowed the nodes by, by name.
	NarrowedBy []string `json:"narrowedBy,omitempty"`
	// The plugins that had nothing to say, by name.
	SkippedFilter []string `json:"skippedFilter,omitempty"`
	SkippedScore  []string `json:"skippedScore,omitempty"`
	// The weights of the score plugins.
	Weights map[string]int64 `json:"weights,omitempty"`
	// What the API server's validation says, one line per fault, if it was asked for.
	Invalid []string `json:"invalid,omitempty"`
}

type nodeAnswer struct {
	Name string `json:"name"`
	// Feasible, Unschedulable, UnschedulableAndUnresolvable or Error.
	Verdict string `json:"verdict"`
	// Who refused; several, comma-joined, when PreFilter narrowed.
	Plugin string `json:"plugin,omitempty"`
	// The reasons, sorted, one by one and comma-joined.
	Reason  string   `json:"reason,omitempty"`
	Reasons []string `json:"reasons,omitempty"`

	// Weighted sum. Only scored nodes have one.
	Total *int64 `json:"total,omitempty"`
	// Normalised, before weight. A plugin that skipped is absent.
	Scores map[string]int64 `json:"scores,omitempty"`
	// Before normalisation, if asked for.
	Raw map[string]int64 `json:"raw,omitempty"`
}

type rejection struct {
	Verdict string   `json:"verdict"`
	Plugin  string   `json:"plugin"`
	Reasons []string `json:"reasons"`
}

// failure is the line for a request that cannot be judged.
type failure struct {
	ID    json.RawMessage `json:"id,omitempty"`
	Error string          `json:"error"`
}
