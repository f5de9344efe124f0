package adbdevice_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"testing"

	"quern/internal/adbdevice"
)

// say writes a message as adb's protocol has it.
func say(t *testing.T, c net.Conn, cmd string, arg0, arg1 uint32, data string) {
	t.Helper()
	b := make([]byte, 24)
	copy(b, cmd)
	binary.LittleEndian.PutUint32(b[4:], arg0)
	binary.LittleEndian.PutUint32(b[8:], arg1)
	binary.LittleEndian.PutUint32(b[12:], uint32(len(data)))
	binary.LittleEndian.PutUint32(b[20:], ^binary.LittleEndian.Uint32(b))
	if _, err := c.Write(append(b, data...)); err != nil {
		t.Fatal(err)
	}
}

func hear(t *testing.T, c net.Conn) (cmd string, arg0 uint32, data string) {
	t.Helper()
	b := make([]byte, 24)
	if _, err := io.ReadFull(c, b); err != nil {
		t.Fatal(err)
	}
	d := make([]byte, binary.LittleEndian.Uint32(b[12:]))
	if _, err := io.ReadFull(c, d); err != nil {
		t.Fatal(err)
	}
	return string(b[:4]), binary.LittleEndian.Uint32(b[4:]), string(d)
}

func TestExec(t *testing.T) {
	d, err := adbdevice.Start([]string{"PATH=/usr/bin:/bin"})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	c, err := net.Dial("tcp", d.Serial())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	say(t, c, "CNXN", 0x01000001, 1<<20, "host::features=cmd")
	if cmd, _, banner := hear(t, c); cmd != "CNXN" || !bytes.HasPrefix([]byte(banner), []byte("device::")) {
		t.Fatalf("%s %s", cmd, banner)
	}
	say(t, c, "OPEN", 7, 0, "exec:read x; echo \"<$x>\"\x00")
	cmd, id, _ := hear(t, c)
	if cmd != "OKAY" {
		t.Fatal(cmd)
	}
	say(t, c, "WRTE", 7, id, "abc\n")
	got := map[string]string{}
	for range 2 { // the answer to our bytes and the command's own, in either order
		cmd, _, data := hear(t, c)
		got[cmd] = data
	}
	if _, ok := got["OKAY"]; !ok || got["WRTE"] != "<abc>\n" {
		t.Fatalf("%q", got)
	}
	say(t, c, "OKAY", 7, id, "")
	if cmd, _, _ := hear(t, c); cmd != "CLSE" {
		t.Fatal(cmd)
	}
	say(t, c, "OPEN", 8, 0, "sync:\x00")
	if cmd, _, _ := hear(t, c); cmd != "CLSE" {
		t.Fatalf("sync: is answered by %s", cmd)
	}
}
