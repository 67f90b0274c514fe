package main

import (
	"encoding/json"
	"fmt"
	"os"
	"sync"

	"k8s.io/klog/v2"
)

// record is one line of the file: one call of a plugin.
type record struct {
	Point  point  `json:"point"`
	Plugin string `json:"plugin"`
	Pod    string `json:"pod"`
	Node   string `json:"node"`
	Status string `json:"status"`
}

// records appends lines to a file. The lines of all plugins that write to it are in the order of their calls.
type records struct {
	lock sync.Mutex
	file *os.File
}

var (
	openedLock sync.Mutex
	// opened contains the files of this process by path, so that two plugins share one.
	opened = map[string]*records{}
)

func openRecords(path string) (*records, error) {
	openedLock.Lock()
	defer openedLock.Unlock()
	if found, ok := opened[path]; ok {
		return found, nil
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the file of the records: %w", err)
	}
	made := &records{file: file}
	opened[path] = made
	return made, nil
}

// write appends one line. It is in the file when write returns: there is no buffer in this process.
func (r *records) write(line record) {
	text, err := json.Marshal(line)
	if err != nil {
		klog.Fatalf("encoding the record %v: %v", line, err)
	}
	r.lock.Lock()
	defer r.lock.Unlock()
	if _, err := r.file.Write(append(text, '\n')); err != nil {
		// A file without this line would be wrong, and the test could not know.
		klog.Fatalf("writing to %s: %v", r.file.Name(), err)
	}
}
