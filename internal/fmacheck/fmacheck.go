// Package fmacheck finds float products that a compiler may fuse with an
// addition.
//
// Go allows x*y + z to be computed with one rounding, also across statements
// and inlined calls, and does so on arm64 and on amd64 with GOAMD64=v3 but not
// on plain amd64. The same source then gives other bytes on another machine. An
// explicit conversion rounds the product: float32(x*y) + z is the same
// everywhere.
//
// A product is accepted when it is converted at once, or when its value can
// reach no addition without being rounded: as a factor or divisor's operand of
// another product (which is checked itself), or in a comparison.
package fmacheck

import (
	"go/ast"
	"go/token"
	"go/types"

	"golang.org/x/tools/go/analysis"
)

// Analyzer reports bare float products.
var Analyzer = &analysis.Analyzer{
	Name: "fmacheck",
	Doc:  "report float products without an explicit conversion, which some machines fuse with an addition",
	Run:  run,
}

func run(pass *analysis.Pass) (any, error) {
	for _, f := range pass.Files {
		var stack []ast.Node
		ast.Inspect(f, func(n ast.Node) bool {
			if n == nil {
				stack = stack[:len(stack)-1]
				return true
			}
			switch e := n.(type) {
			case *ast.BinaryExpr:
				if e.Op == token.MUL && isFloat(pass, e) && !rounded(pass, stack) {
					pass.Report(diagnostic(pass, e))
				}
			case *ast.AssignStmt:
				if e.Tok == token.MUL_ASSIGN && isFloat(pass, e.Lhs[0]) {
					pass.Reportf(e.TokPos, "float product may be fused with an addition on some machines; write v = float32(v*y)")
				}
			}
			stack = append(stack, n)
			return true
		})
	}
	return nil, nil
}

// diagnostic reports a product, with the conversion that mends it.
func diagnostic(pass *analysis.Pass, e *ast.BinaryExpr) analysis.Diagnostic {
	d := analysis.Diagnostic{Pos: e.OpPos, Message: "float product may be fused with an addition on some machines; write float32(x*y)"}
	if name := types.TypeString(pass.TypesInfo.TypeOf(e), types.RelativeTo(pass.Pkg)); name != "" {
		d.SuggestedFixes = []analysis.SuggestedFix{{
			Message: "convert the product",
			TextEdits: []analysis.TextEdit{
				{Pos: e.Pos(), End: e.Pos(), NewText: []byte(name + "(")},
				{Pos: e.End(), End: e.End(), NewText: []byte(")")},
			},
		}}
	}
	return d
}

// isFloat reports whether e is a float computed at run time.
func isFloat(pass *analysis.Pass, e ast.Expr) bool {
	tv, ok := pass.TypesInfo.Types[e]
	if !ok || tv.Value != nil || tv.Type == nil {
		return false
	}
	if b, ok := tv.Type.Underlying().(*types.Basic); ok {
		return b.Info()&types.IsFloat != 0
	}
	// A type parameter whose type set holds a float counts as one.
	if p, ok := tv.Type.(*types.TypeParam); ok {
		return hasFloat(p)
	}
	return false
}

func hasFloat(p *types.TypeParam) bool {
	iface, ok := p.Constraint().Underlying().(*types.Interface)
	if !ok {
		return false
	}
	for i := range iface.NumEmbeddeds() {
		u, ok := iface.EmbeddedType(i).(*types.Union)
		if !ok {
			continue
		}
		for j := range u.Len() {
			if b, ok := u.Term(j).Type().Underlying().(*types.Basic); ok && b.Info()&types.IsFloat != 0 {
				return true
			}
		}
	}
	return false
}

// rounded reports whether what stands around a product keeps it from an
// addition.
func rounded(pass *analysis.Pass, stack []ast.Node) bool {
	for i := len(stack) - 1; i >= 0; i-- {
		switch p := stack[i].(type) {
		case *ast.ParenExpr:
			continue
		case *ast.UnaryExpr:
			if p.Op == token.SUB || p.Op == token.ADD {
				continue
			}
			return false
		case *ast.BinaryExpr:
			switch p.Op {
			case token.MUL, token.QUO, token.EQL, token.NEQ, token.LSS, token.LEQ, token.GTR, token.GEQ:
				return true
			}
			return false
		case *ast.CallExpr:
			tv, ok := pass.TypesInfo.Types[p.Fun]
			return ok && tv.IsType()
		default:
			return false
		}
	}
	return false
}
