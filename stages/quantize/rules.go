package quantize

import (
	"fmt"
	"regexp"
	"strings"

	"quern/model"
	"quern/recipes"
	"quern/tensor"
)

type rule struct {
	re   *regexp.Regexp
	role string
	t    tensor.Type
	pos  recipes.Pos
}

func (r rule) String() string {
	var parts []string
	if r.re != nil {
		parts = append(parts, fmt.Sprintf("match %q", r.re))
	}
	if r.role != "" {
		parts = append(parts, fmt.Sprintf("role %q", r.role))
	}
	return strings.Join(parts, " and ")
}

// firstRule finds the rule that decides a tensor, or -1. A rule that any tensor
// meets counts as used, even when an earlier one decides.
func (s *Stage) firstRule(in *model.Model, name string, used []bool) int {
	first := -1
	for i, r := range s.rules {
		if r.re != nil && !r.re.MatchString(name) || r.role != "" && !hasRole(in, name, r.role) {
			continue
		}
		used[i] = true
		if first < 0 {
			first = i
		}
	}
	return first
}

// hasRole reports whether a tensor has a role, or one of the groups of roles
// that rules may name.
func hasRole(in *model.Model, name, role string) bool {
	id, ok := in.ID(name)
	if !ok {
		return false
	}
	r := string(id.Role)
	switch role {
	case "experts":
		return id.Role.IsExpert()
	case "attention":
		return strings.HasPrefix(r, "attn_") && !id.Role.IsNorm()
	case "feed-forward":
		return strings.HasPrefix(r, "ffn_") && !id.Role.IsNorm()
	case "embedding":
		return id.Role == model.TokenEmbd
	case "head":
		return id.Role == model.Output || id.Role == model.TokenEmbd && in.ByRole(model.Output, -1, ".weight") == nil
	}
	return r == role
}

// RoleGroups lists the groups that a rule's role may name besides the roles of
// package model.
func RoleGroups() []string {
	return []string{"attention", "embedding", "experts", "feed-forward", "head"}
}
