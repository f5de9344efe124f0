// Command encoder quantizes what it reads, so that programs in other languages
// can hold tensor/quant against its peers. A request on stdin is five u32: ggml
// type, values in a row, rows, whether weights follow, and 1 to read bytes of
// that type in place of values; then float32 values (or the bytes), then weights
// for one row. The answer is the rows encoded (left out where bytes came), then
// decoded to float32. All little-endian.
package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"quern/tensor"
	"quern/tensor/quant"
)

func main() {
	if err := serve(bufio.NewReaderSize(os.Stdin, 1<<20), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "encoder:", err)
		os.Exit(1)
	}
}

func serve(r io.Reader, w io.Writer) error {
	for {
		var h struct{ Type, Row, Rows, Weighted, Decode uint32 }
		err := binary.Read(r, binary.LittleEndian, &h)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		t, ok := byID(int32(h.Type))
		if !ok {
			return fmt.Errorf("no type %d", h.Type)
		}
		if n := uint64(h.Row) * uint64(h.Rows); n == 0 || n > 1<<26 {
			return fmt.Errorf("%d rows of %d values", h.Rows, h.Row)
		}
		if err := answer(r, w, t, int64(h.Row), int64(h.Rows), h.Weighted != 0, h.Decode != 0); err != nil {
			return err
		}
	}
}

func byID(id int32) (tensor.Type, bool) {
	for _, t := range tensor.Types() {
		if n, ok := t.GGML(); ok && n == id {
			return t, true
		}
	}
	return tensor.Invalid, false
}

func answer(r io.Reader, w io.Writer, t tensor.Type, row, rows int64, weighted, bytes bool) error {
	size, err := tensor.RowBytes(t, row)
	if err != nil {
		return err
	}
	data := make([]byte, size*rows)
	x := make([]float32, row*rows)
	d, err := quant.DecoderFor(t)
	if err != nil {
		return err
	}
	if bytes {
		if _, err := io.ReadFull(r, data); err != nil {
			return err
		}
	} else {
		c, err := quant.For(t)
		if err != nil {
			return err
		}
		if err := binary.Read(r, binary.LittleEndian, x); err != nil {
			return err
		}
		var weights []float32
		if weighted {
			weights = make([]float32, row)
			if err := binary.Read(r, binary.LittleEndian, weights); err != nil {
				return err
			}
		}
		for i := range rows {
			c.EncodeRow(data[i*size:(i+1)*size], x[i*row:(i+1)*row], weights)
		}
		if _, err := w.Write(data); err != nil {
			return err
		}
	}
	d.Decode(x, data)
	return binary.Write(w, binary.LittleEndian, x)
}
