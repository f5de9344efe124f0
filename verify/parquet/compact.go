package parquet

import "encoding/binary"

// compact writes structs in Thrift's compact protocol, which Parquet's headers and
// footers are in:
//
//	field    id - id of the field before << 4 | kind, 1 byte, then the value; ids ascend
//	i32, i64 zigzag, then 7 bits a byte, the lowest first, the top bit set but in the last
//	binary   length like that without zigzag, bytes
//	list     length << 4 | kind, 1 byte, or 15 << 4 | kind and the length; then values without their kind
//	struct   fields, then a byte of 0
type compact struct {
	b    []byte
	last []int // the field written last, of each struct that is open
}

// The kinds of values. A bool has no bytes of its own.
const (
	kindTrue   = 1
	kindByte   = 3
	kindI32    = 5
	kindI64    = 6
	kindBinary = 8
	kindList   = 9
	kindStruct = 12
)

// begin opens a struct: a value of a list, or the outermost.
func (c *compact) begin() { c.last = append(c.last, 0) }

// end closes the struct that was opened last.
func (c *compact) end() {
	c.b = append(c.b, 0)
	c.last = c.last[:len(c.last)-1]
}

func (c *compact) field(id, kind int) {
	last := &c.last[len(c.last)-1]
	c.b = append(c.b, byte((id-*last)<<4|kind))
	*last = id
}

func (c *compact) i32(id int, v int32) {
	c.field(id, kindI32)
	c.b = binary.AppendVarint(c.b, int64(v))
}

func (c *compact) i64(id int, v int64) {
	c.field(id, kindI64)
	c.b = binary.AppendVarint(c.b, v)
}

func (c *compact) str(id int, s string) {
	c.field(id, kindBinary)
	c.text(s)
}

// text is a value of a list of strings.
func (c *compact) text(s string) {
	c.b = append(binary.AppendUvarint(c.b, uint64(len(s))), s...)
}

// list opens a list of n values, which follow.
func (c *compact) list(id, kind, n int) {
	c.field(id, kindList)
	if n < 15 {
		c.b = append(c.b, byte(n<<4|kind))
		return
	}
	c.b = binary.AppendUvarint(append(c.b, byte(15<<4|kind)), uint64(n))
}

// open opens a struct that is a field.
func (c *compact) open(id int) {
	c.field(id, kindStruct)
	c.begin()
}
