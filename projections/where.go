package projections

import (
	"strconv"
	"strings"
)

// Where collects the conditions of a query and their arguments. Conditions are constants of the program; whatever
// comes from outside is an argument.
type Where struct {
	conditions []string
	args       []any
}

// Add adds a condition in which {} stands for the argument.
func (w *Where) Add(condition string, arg any) {
	w.conditions = append(w.conditions, strings.Replace(condition, "{}", w.Arg(arg), 1))
}

// Arg adds an argument alone and gives its placeholder.
func (w *Where) Arg(arg any) string {
	w.args = append(w.args, arg)
	return "$" + strconv.Itoa(len(w.args))
}

// Within bounds the query to a scope. The columns of p hold the ids; an empty one: the table has no such column.
func (w *Where) Within(s Scope, p Place) {
	if s.All {
		return
	}
	var reaches []string
	reach := func(column string, ids []string) {
		switch {
		case column == "" || len(ids) == 0:
		case len(ids) == 1: // an index of the column and the key gives these in the order of a list
			reaches = append(reaches, column+" = "+w.Arg(ids[0]))
		default:
			reaches = append(reaches, column+" = ANY("+w.Arg(ids)+")")
		}
	}
	reach(p.Tenant, s.Tenants)
	reach(p.Site, s.Sites)
	reach(p.Pool, s.Pools)
	reach(p.Node, s.Nodes)
	if len(reaches) == 0 {
		reaches = []string{"false"}
	}
	w.conditions = append(w.conditions, "("+strings.Join(reaches, " OR ")+")")
}

// SQL is the WHERE clause; empty without conditions.
func (w *Where) SQL() string {
	if len(w.conditions) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(w.conditions, " AND ")
}

// Args are the arguments in order.
func (w *Where) Args() []any { return w.args }
