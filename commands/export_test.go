package commands

// Remembering bounds how many folds a service keeps in memory.
func (s *Service) Remembering(most int) *Service {
	s.cache = newStateCache(most)
	return s
}
