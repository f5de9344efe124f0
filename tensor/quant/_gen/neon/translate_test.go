package neon

import (
	"strings"
	"testing"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// translated gives the code of a function f(p *float32) that is built by body.
func translated(t *testing.T, body func(c *build.Context, p operand.Mem)) (string, error) {
	t.Helper()
	c := build.NewContext()
	c.Function("f")
	c.SignatureExpr("func(p *float32)")
	p := c.GP64()
	c.Load(c.Param("p"), p)
	body(c, operand.Mem{Base: p})
	c.RET()
	file, err := c.Result()
	if err != nil {
		t.Fatal(err)
	}
	a, err := Translate(file, map[reg.ID]bool{})
	if err != nil {
		return "", err
	}
	_, code, _ := strings.Cut(string(a.Print("", "arm64")), "TEXT")
	return code, nil
}

// TestExtremes: what may be no number, or a zero, is compared.
func TestExtremes(t *testing.T) {
	for _, tc := range []struct {
		name   string
		direct bool
		body   func(c *build.Context, p operand.Mem, x, y reg.VecVirtual)
	}{
		{"two loads", false, func(c *build.Context, p operand.Mem, x, y reg.VecVirtual) { c.VMAXPS(x, y, y) }},
		{"sums", false, func(c *build.Context, p operand.Mem, x, y reg.VecVirtual) {
			c.VADDPS(x, y, y)
			c.VMAXPS(x, y, y)
		}},
		{"a maximum with zero", true, func(c *build.Context, p operand.Mem, x, y reg.VecVirtual) {
			zero, sum := c.YMM(), c.YMM()
			c.VXORPS(zero, zero, zero)
			c.VADDPS(x, y, sum)
			c.VMAXPS(zero, sum, y)
		}},
		{"a minimum with zero", false, func(c *build.Context, p operand.Mem, x, y reg.VecVirtual) {
			zero, sum := c.YMM(), c.YMM()
			c.VXORPS(zero, zero, zero)
			c.VADDPS(x, y, sum)
			c.VMINPS(zero, sum, y)
		}},
		{"a load that may signal", false, func(c *build.Context, p operand.Mem, x, y reg.VecVirtual) {
			zero := c.YMM()
			c.VXORPS(zero, zero, zero)
			c.VMAXPS(zero, x, y)
		}},
	} {
		code, err := translated(t, func(c *build.Context, p operand.Mem) {
			x, y := c.YMM(), c.YMM()
			c.VMOVUPS(p, x)
			c.VMOVUPS(p.Offset(32), y)
			tc.body(c, p, x, y)
			c.VMOVUPS(y, p)
		})
		if err != nil {
			t.Fatal(err)
		}
		if direct, compared := strings.Contains(code, "fm"), strings.Contains(code, "fcmgt"); direct != tc.direct || compared == tc.direct {
			t.Errorf("%s: direct %t, compared %t:\n%s", tc.name, direct, compared, code)
		}
	}
}

// TestUniform: a constant takes one register and no memory.
func TestUniform(t *testing.T) {
	code, err := translated(t, func(c *build.Context, p operand.Mem) {
		m := c.StaticGlobal("one")
		c.AddDatum(0, operand.U32(0x3f800000))
		x, y := c.YMM(), c.YMM()
		c.VBROADCASTSS(m, x)
		c.VADDPS(p, x, y)
		c.VMOVUPS(y, p)
	})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(code, "dup v") != 1 || strings.Contains(code, "one<>") || strings.Count(code, "fadd") != 2 {
		t.Errorf("the code is\n%s", code)
	}
}

// TestRefuses: what has no translation is an error that names the instruction.
func TestRefuses(t *testing.T) {
	for name, body := range map[string]func(c *build.Context, p operand.Mem){
		"VFMADD231PS": func(c *build.Context, p operand.Mem) {
			x := c.YMM()
			c.VMOVUPS(p, x)
			c.VFMADD231PS(x, x, x)
		},
		"VCMPPS": func(c *build.Context, p operand.Mem) {
			x := c.YMM()
			c.VMOVUPS(p, x)
			c.VCMPPS(operand.U8(11), x, x, x) // false
		},
		"VPSHUFD": func(c *build.Context, p operand.Mem) {
			x := c.YMM()
			c.VMOVUPS(p, x)
			c.VPSHUFD(operand.U8(0x1b), x, x)
		},
		"JNE": func(c *build.Context, p operand.Mem) {
			c.ADDQ(operand.I32(4), p.Base)
			c.Label("at")
			c.JNE(operand.LabelRef("at"))
		},
	} {
		if _, err := translated(t, body); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
