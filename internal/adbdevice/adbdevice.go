// Package adbdevice is a small Android device for tests: it speaks adb's protocol
// over TCP, so that the real client of a Linux distribution connects to it, and
// runs what it is told by this machine's shell. It knows no authentication, no pty
// and of the services only exec: and shell:.
//
// A message of the protocol, little-endian:
//
//	0         4      8      12       16      20        24
//	+---------+------+------+--------+-------+---------+------
//	| command | arg0 | arg1 | length | check | ^command| data
//	+---------+------+------+--------+-------+---------+------
//
//	CNXN version maxdata  banner     both sides, first
//	OPEN local   0        service    the host wants a stream
//	OKAY local   remote              ready for (more) data
//	WRTE local   remote   data       answered by OKAY
//	CLSE local   remote              the end, of either side
package adbdevice

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"sync"
)

const (
	cmdCNXN = 0x4e584e43
	cmdOPEN = 0x4e45504f
	cmdOKAY = 0x59414b4f
	cmdWRTE = 0x45545257
	cmdCLSE = 0x45534c43
	cmdAUTH = 0x48545541

	version = 0x01000001
	maxData = 256 << 10
)

// Device is a device that listens on a port of this machine.
type Device struct {
	// Env is the environment of commands, such as a PATH with few programs.
	Env []string

	mu    sync.Mutex
	cut   int64 // the cable comes off when so many bytes have come in
	taken int64 // bytes that streams have received
	l     net.Listener
	conns map[net.Conn]bool
	wg    sync.WaitGroup
}

// Start listens on a free port of 127.0.0.1.
func Start(env []string) (*Device, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	d := &Device{Env: env, l: l, conns: map[net.Conn]bool{}}
	d.wg.Go(d.accept)
	return d, nil
}

// Serial is what adb calls the device, and what adb connect takes.
func (d *Device) Serial() string { return d.l.Addr().String() }

// CutAfter takes the cable off once, after n more bytes of streams.
func (d *Device) CutAfter(n int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cut = d.taken + n
}

// Close ends everything.
func (d *Device) Close() {
	d.l.Close()
	d.drop()
	d.wg.Wait()
}

func (d *Device) drop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := range d.conns {
		c.Close()
	}
}

func (d *Device) accept() {
	for {
		c, err := d.l.Accept()
		if err != nil {
			return
		}
		d.mu.Lock()
		d.conns[c] = true
		d.mu.Unlock()
		d.wg.Go(func() {
			h := &host{d: d, c: c, streams: map[uint32]*stream{}}
			h.serve()
			c.Close()
			d.mu.Lock()
			delete(d.conns, c)
			d.mu.Unlock()
		})
	}
}

// count notes received bytes and reports whether the cable comes off now.
func (d *Device) count(n int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.taken += int64(n)
	if d.cut > 0 && d.taken >= d.cut {
		d.cut = 0
		return true
	}
	return false
}

type message struct {
	cmd, arg0, arg1 uint32
	data            []byte
}

func readMessage(r io.Reader) (message, error) {
	var head [24]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return message{}, err
	}
	le := binary.LittleEndian
	m := message{cmd: le.Uint32(head[0:]), arg0: le.Uint32(head[4:]), arg1: le.Uint32(head[8:])}
	n := le.Uint32(head[12:])
	if le.Uint32(head[20:]) != ^m.cmd {
		return m, fmt.Errorf("message %#x: bad magic", m.cmd)
	}
	if n > maxData {
		return m, fmt.Errorf("message %#x: %d bytes of data", m.cmd, n)
	}
	m.data = make([]byte, n)
	_, err := io.ReadFull(r, m.data)
	return m, err
}

// host is a connection from an adb server.
type host struct {
	d *Device
	c net.Conn

	write sync.Mutex

	mu      sync.Mutex
	streams map[uint32]*stream // by our id
	next    uint32
}

func (h *host) send(cmd, arg0, arg1 uint32, data []byte) error {
	b := make([]byte, 24, 24+len(data))
	le := binary.LittleEndian
	var sum uint32
	for _, x := range data {
		sum += uint32(x)
	}
	for i, v := range []uint32{cmd, arg0, arg1, uint32(len(data)), sum, ^cmd} {
		le.PutUint32(b[4*i:], v)
	}
	h.write.Lock()
	defer h.write.Unlock()
	_, err := h.c.Write(append(b, data...))
	return err
}

func (h *host) serve() {
	defer h.endStreams()
	for {
		m, err := readMessage(h.c)
		if err != nil {
			return
		}
		if err := h.handle(m); err != nil {
			return
		}
	}
}

func (h *host) endStreams() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.streams {
		s.end()
	}
}

var errCut = errors.New("the cable is off")

func (h *host) handle(m message) error {
	switch m.cmd {
	case cmdCNXN:
		return h.send(cmdCNXN, version, maxData, []byte("device::ro.product.name=quern;ro.product.model=box;ro.product.device=box;features=cmd"))
	case cmdAUTH:
		return nil // whoever it is, is welcome
	case cmdOPEN:
		return h.open(m.arg0, strings.TrimRight(string(m.data), "\x00"))
	}
	h.mu.Lock()
	s := h.streams[m.arg1]
	h.mu.Unlock()
	if s == nil {
		if m.cmd == cmdWRTE {
			return h.send(cmdCLSE, 0, m.arg0, nil)
		}
		return nil
	}
	switch m.cmd {
	case cmdWRTE:
		if h.d.count(len(m.data)) {
			return errCut
		}
		s.in <- m.data // the goroutine of the stream answers when it is taken
	case cmdOKAY:
		select {
		case s.ready <- struct{}{}:
		default:
		}
	case cmdCLSE:
		s.end()
	}
	return nil
}

// stream is a running command.
type stream struct {
	h        *host
	id, peer uint32
	in       chan []byte
	ready    chan struct{}
	once     sync.Once
	ended    chan struct{}
}

func (s *stream) end() { s.once.Do(func() { close(s.ended) }) }

func (h *host) open(peer uint32, service string) error {
	script, ok := strings.CutPrefix(service, "exec:")
	if !ok {
		script, ok = strings.CutPrefix(service, "shell:")
	}
	if !ok {
		return h.send(cmdCLSE, 0, peer, nil)
	}
	h.mu.Lock()
	h.next++
	// The host sends one message and waits for its OKAY, so one place is enough.
	s := &stream{h: h, id: h.next, peer: peer, in: make(chan []byte, 4), ready: make(chan struct{}, 1), ended: make(chan struct{})}
	h.streams[s.id] = s
	h.mu.Unlock()
	if err := h.send(cmdOKAY, s.id, peer, nil); err != nil {
		return err
	}
	h.d.wg.Go(func() { s.run(script) })
	return nil
}

// run runs a command, whose streams are one, as an exec: service has it.
func (s *stream) run(script string) {
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.Env = s.h.d.Env
	in, err := cmd.StdinPipe()
	if err != nil {
		return
	}
	out, w := io.Pipe()
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		return
	}
	var feeding sync.WaitGroup
	done := make(chan struct{})
	feeding.Go(func() { s.feed(in, done) })
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		s.copyOut(out)
	}()
	_ = cmd.Wait() // the script prints its exit code if anybody wants it
	close(done)
	w.Close()
	<-copied
	feeding.Wait()
	_ = s.h.send(cmdCLSE, s.id, s.peer, nil) // or the host is gone
	s.h.mu.Lock()
	delete(s.h.streams, s.id)
	s.h.mu.Unlock()
}

// feed gives the command what comes in, until the host or the command ends.
func (s *stream) feed(in io.WriteCloser, done chan struct{}) {
	defer in.Close()
	for {
		select {
		case b := <-s.in:
			if _, err := in.Write(b); err != nil {
				return
			}
			if s.h.send(cmdOKAY, s.id, s.peer, nil) != nil {
				return
			}
		case <-done:
			return
		case <-s.ended:
			for {
				select {
				case b := <-s.in:
					if _, err := in.Write(b); err != nil {
						return
					}
				default:
					return
				}
			}
		}
	}
}

func (s *stream) copyOut(r io.Reader) {
	buf := make([]byte, 64<<10)
	for {
		n, err := r.Read(buf)
		if n > 0 && s.h.send(cmdWRTE, s.id, s.peer, buf[:n]) == nil {
			select {
			case <-s.ready:
			case <-s.ended:
			}
		}
		if err != nil {
			return
		}
	}
}
