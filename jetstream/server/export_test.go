package server

// Term returns how many elections this server knows of, in the group that assigns streams.
func (s *Server) Term() uint64 { return meta(s.ns).Term }

// WaitsToBeAdded reports whether it believes in a cluster that no servers can be.
func (s *Server) WaitsToBeAdded() bool { return meta(s.ns).Size == neverAll }
