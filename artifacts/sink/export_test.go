package sink

import "net/http"

// Trust lets a sink know the certificate of a test's server.
func Trust(s Sink, c *http.Client) {
	h := s.(*httpSink)
	h.httpc.Transport = c.Transport
}
