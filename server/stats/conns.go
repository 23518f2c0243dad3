package stats

import (
	"context"
	"net"
	"sync"
)

// CountConns returns a dial that counts the connections which dial makes, by the original's
// names for a pool: NAME.cx_active are open now, NAME.cx_total were opened, and
// NAME.cx_local_close were closed by this side.
func CountConns(r *Registry, name string, dial func(ctx context.Context, addr string) (net.Conn, error)) func(context.Context, string) (net.Conn, error) {
	active, total, closed := r.Gauge(name+".cx_active"), r.Configured(name+".cx_total"), r.Configured(name+".cx_local_close")
	return func(ctx context.Context, addr string) (net.Conn, error) {
		conn, err := dial(ctx, addr)
		if err != nil {
			return nil, err
		}
		active.Add(1)
		total.Add(1)
		return &countedConn{Conn: conn, closed: func() {
			active.Add(-1)
			closed.Add(1)
		}}, nil
	}
}

type countedConn struct {
	net.Conn
	once   sync.Once
	closed func()
}

func (c *countedConn) Close() error {
	c.once.Do(c.closed)
	return c.Conn.Close()
}
