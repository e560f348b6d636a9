package chat

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/wp-durable/wp-durable/server"
)

// Address says where a server listens, and the key by which it proves that it
// is the one.
type Address struct {
	Addr string // host:port
	Key  []byte
}

// Dialer connects to a server of this machine. Each connection is one to a
// server that has proved to know the key: nothing was sent on it before that
// somebody else must not have. Find is asked before each connection, since a
// server that was started anew has another key.
type Dialer struct {
	Find func() (*Address, error)
}

// Transport returns a transport over the dialer that uses no proxy.
func (d *Dialer) Transport() *http.Transport {
	return &http.Transport{DialContext: d.Dial, DisableCompression: true}
}

// proofTimeout is how long a server may take to prove itself. A health check
// may wait for the store.
const proofTimeout = 10 * time.Second

// errImpostor: something else has the server's port.
var errImpostor = errors.New("what listens there is not the server that wrote it")

// Dial connects, whatever address is asked for.
func (d *Dialer) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	at, err := d.Find()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, proofTimeout)
	defer cancel()
	var nd net.Dialer
	conn, err := nd.DialContext(ctx, "tcp", at.Addr)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	err = demandProof(ctx, conn, at)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("server at %s: %w", at.Addr, err)
	}
	return conn, nil
}

// demandProof asks for the server's health on a new connection and returns nil
// when the answer proves that it knows the key and works.
func demandProof(ctx context.Context, conn net.Conn, at *Address) error {
	if len(at.Key) == 0 {
		return errImpostor
	}
	challenge := rand.Text()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at.Addr+"/healthz", nil)
	if err != nil {
		return err
	}
	req.Header.Set("Wp-Durable-Challenge", challenge)
	if err := req.Write(conn); err != nil {
		return err
	}
	r := bufio.NewReader(conn)
	res, err := http.ReadResponse(r, req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if !hmac.Equal([]byte(res.Header.Get("Wp-Durable-Proof")), []byte(server.Proof(at.Key, challenge))) {
		return errImpostor
	}
	const most = 64 << 10
	if _, err := io.Copy(io.Discard, io.LimitReader(res.Body, most)); err != nil {
		return err
	}
	switch {
	case res.StatusCode != http.StatusOK:
		return &Error{Status: res.StatusCode, Message: res.Status}
	case res.Close || r.Buffered() > 0:
		return errors.New("it does not keep the connection")
	}
	return nil
}
