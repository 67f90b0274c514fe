// scheduler-judge: returns the verdicts and scores of kube-scheduler's own plugins for a world.
//
// It links the scheduling framework, the cache and the in-tree plugins of the Kubernetes release that its module pins,
// with the feature gates at that release's defaults. It reads one JSON request per line from standard input and writes
// one JSON answer per line to standard output, in the same order, until the input ends. The reply to a request that
// cannot be judged is an error line; such a request never ends the program.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
)

// The maximum length of a request. A longer one is skipped, and the reply is an error.
const requestBytesMax = 256 << 20

func main() {
	// Only errors are printed: kube-scheduler's log messages about a configuration are noise here.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	// The plugins report to these metrics and do not work without them.
	metrics.Register()
	if err := serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "scheduler-judge:", err)
		os.Exit(1)
	}
}

func serve(input io.Reader, output io.Writer) error {
	reader := bufio.NewReaderSize(input, 1<<20)
	writer := bufio.NewWriter(output)
	encoder := json.NewEncoder(writer)
	encoder.SetEscapeHTML(false)
	court := newCourt()
	for {
		line, tooLong, err := readLine(reader)
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("reading a request: %w", err)
		}
		if len(line) > 0 || tooLong {
			if err := encoder.Encode(reply(court, line, tooLong)); err != nil {
				return fmt.Errorf("writing an answer: %w", err)
			}
			if err := writer.Flush(); err != nil {
				return fmt.Errorf("writing an answer: %w", err)
			}
		}
		if err != nil {
			return nil
		}
	}
}

// readLine reads up to the next line feed. A line that exceeds the limit is read and dropped, so that the next line is
// complete.
func readLine(reader *bufio.Reader) (line []byte, tooLong bool, err error) {
	for {
		part, err := reader.ReadSlice('\n')
		if len(line)+len(part) > requestBytesMax {
			tooLong = true
			line = nil
		} else if !tooLong {
			line = append(line, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, tooLong, err
		}
	}
}

// reply answers one line with any content. A panic inside a plugin becomes an error reply and does not end the program.
func reply(court *court, line []byte, tooLong bool) (given any) {
	request := &request{}
	defer func() {
		if cause := recover(); cause != nil {
			fmt.Fprintf(os.Stderr, "scheduler-judge: %v\n%s\n", cause, debug.Stack())
			given = failure{ID: request.ID, Error: fmt.Sprintf("panic: %v", cause)}
		}
	}()
	if tooLong {
		return failure{Error: fmt.Sprintf("the request is longer than %d bytes", requestBytesMax)}
	}
	world, err := readWorld(line, request)
	if err != nil {
		return failure{ID: request.ID, Error: err.Error()}
	}
	answer, err := court.judge(request, world)
	if err != nil {
		return failure{ID: request.ID, Error: err.Error()}
	}
	return answer
}
