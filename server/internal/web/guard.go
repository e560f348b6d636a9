package web

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/wp-durable/wp-durable/tools/secrets"
)

// Guard refuses what a web page in somebody's browser could send to a server
// that only listens locally: requests for a host name that is not the server's
// (DNS rebinding), and requests of other origins.
type Guard struct {
	hosts   []string // lower case, with or without port
	origins []string
	check   bool // whether Host is checked
}

// GuardOptions are what a [Guard] knows of the server.
type GuardOptions struct {
	// Bound is the address the server listens on.
	Bound string
	// Hosts are further names of the server.
	Hosts []string
	// Origins are those that may call the server beside its own.
	Origins []string
	// PublicHost is the host of the server's public URL, empty for none.
	PublicHost string
}

// NewGuard returns a guard. Host is checked when the server listens on a
// loopback or private address, and always once names are configured.
func NewGuard(o GuardOptions) *Guard {
	g := &Guard{origins: o.Origins, check: len(o.Hosts) > 0}
	bound := hostname(o.Bound)
	if ip, err := netip.ParseAddr(bound); err == nil && (ip.IsLoopback() || ip.IsPrivate() || ip.IsLinkLocalUnicast()) {
		g.check = true
	}
	g.hosts = append(slices.Clone(o.Hosts), bound)
	if o.PublicHost != "" {
		g.hosts = append(g.hosts, o.PublicHost)
		g.origins = append(slices.Clone(g.origins), "https://"+o.PublicHost, "http://"+o.PublicHost)
	}
	return g
}

// hostname returns the host of host:port, without brackets, lower case.
func hostname(hostport string) string {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = hostport
	}
	return strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), ".")
}

// Handler returns next behind the guard. open are paths that any host name may
// ask for.
func (g *Guard) Handler(next http.Handler, redact *secrets.Redactor, open ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if slices.Contains(open, r.URL.Path) {
			next.ServeHTTP(w, r)
			return
		}
		if !g.HostAllowed(r.Host) {
			NewProblem(http.StatusForbidden, CodeForbidden, "this is not a name of the server; add it to WP_DURABLE_HOSTS").Write(w, redact)
			return
		}
		origin := r.Header.Get("Origin")
		if origin == "" {
			next.ServeHTTP(w, r)
			return
		}
		listed := slices.Contains(g.origins, strings.ToLower(origin))
		if !listed && !ownOrigin(origin, r.Host) {
			NewProblem(http.StatusForbidden, CodeForbidden, "web pages of this origin may not call the server; add it to WP_DURABLE_ORIGINS").Write(w, redact)
			return
		}
		if listed {
			allowOrigin(w.Header(), origin)
			if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
				preflight(w)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// HostAllowed reports whether a Host header names the server.
func (g *Guard) HostAllowed(host string) bool {
	if !g.check {
		return true
	}
	name := hostname(host)
	if name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return true
	}
	if ip, err := netip.ParseAddr(name); err == nil && ip.IsLoopback() {
		return true
	}
	return slices.Contains(g.hosts, name) || slices.Contains(g.hosts, strings.ToLower(host))
}

// ownOrigin reports whether origin is that of a page the server itself served.
func ownOrigin(origin, host string) bool {
	u, err := url.Parse(origin)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return false
	}
	port := ":443"
	if u.Scheme == "http" {
		port = ":80"
	}
	return strings.EqualFold(strings.TrimSuffix(u.Host, port), strings.TrimSuffix(host, port))
}

func allowOrigin(h http.Header, origin string) {
	h.Set("Access-Control-Allow-Origin", origin)
	h.Add("Vary", "Origin")
	h.Set("Access-Control-Expose-Headers", "Retry-After, Allow")
}

func preflight(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE")
	h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, Last-Event-ID")
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
}
