// Package pipeline plans a build and runs it: it opens the sources, lets the
// stages turn one lazy model into the next, lays out every output before a byte
// of weights is read, and then pulls tensors in file order through one writer.
//
// It knows models and lazy tensors, but no recipe syntax and no file format:
// stages and emitters come in through interfaces.
package pipeline

// EventKind says what an Event reports.
type EventKind string

// The kinds of events, in the order in which a build may send them.
const (
	EventPhase    EventKind = "phase"    // Message names the phase that starts
	EventWarning  EventKind = "warning"  // Message says what the user should know
	EventNote     EventKind = "note"     // Message is of interest to some
	EventOutput   EventKind = "output"   // an output starts: Output, Total bytes
	EventTensor   EventKind = "tensor"   // a tensor of the output is written: Tensor, Done, Total
	EventProgress EventKind = "progress" // Done of Total bytes of the output
	EventFetch    EventKind = "fetch"    // Done of Total bytes from the network
	EventDone     EventKind = "done"     // an output is finished: Output, Total bytes
)

// Event is one report of a running build. Fields that do not apply are empty.
type Event struct {
	Kind    EventKind `json:"kind"`
	Output  string    `json:"output,omitempty"`
	Tensor  string    `json:"tensor,omitempty"`
	Done    int64     `json:"done,omitempty"`
	Total   int64     `json:"total,omitempty"`
	Message string    `json:"message,omitempty"`
}

// Events receives events. It must be quick and safe for several goroutines.
type Events interface {
	Event(Event)
}

// NoEvents drops everything.
type NoEvents struct{}

// Event does nothing.
func (NoEvents) Event(Event) {}

// EventFunc lets a function be an Events.
type EventFunc func(Event)

// Event calls f.
func (f EventFunc) Event(e Event) { f(e) }

// Warnf-style helpers keep call sites short.
func warn(ev Events, msg string) { ev.Event(Event{Kind: EventWarning, Message: msg}) }
