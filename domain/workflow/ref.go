package workflow

// About tells which workflow, machine and profile an event is about.
func (r Ref) About() Ref { return r }

// About tells which workflow, machine and profile any event of this package is about.
func About(e Event) Ref {
	if of, ok := e.(interface{ About() Ref }); ok {
		return of.About()
	}
	return Ref{}
}
