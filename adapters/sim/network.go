package sim

func (m *Machine) network(l *life) (program, bool) { return program{}, false }

func (m *Machine) script(l *life, url string) (program, bool) { return program{}, false }
