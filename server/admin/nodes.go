package admin

import (
	"github.com/prometheus/client_golang/prometheus"

	"weir.dev/weir/redisstore"
)

// Nodes returns the metrics of the servers that decide, which list returns. They are
// pulled when somebody asks for metrics.
func Nodes(list func() []redisstore.Node) prometheus.Collector { return nodes{list} }

type nodes struct{ list func() []redisstore.Node }

var (
	nodeState = prometheus.NewDesc("rate_limit_store_node_state",
		"Whether a node is asked: 0 healthy, 1 avoided because it fails, 2 tried by one question at a time, 3 returning.", []string{"node"}, nil)
	nodeInFlight = prometheus.NewDesc("rate_limit_store_node_in_flight",
		"Questions that wait for a node.", []string{"node"}, nil)
	nodeOpened = prometheus.NewDesc("rate_limit_store_node_opened_total",
		"How often a node has become avoided.", []string{"node"}, nil)
	nodeLost = prometheus.NewDesc("rate_limit_store_node_losses_total",
		"What a node has lost, by how: keys that it evicted for want of memory (evicted), times that somebody emptied it (flushed), times that another process took its place (restarted). Limits whose state is lost begin anew.", []string{"node", "how"}, nil)
	nodeFailures = prometheus.NewDesc("rate_limit_store_node_failures_total",
		"Questions that a node did not answer, those that it was not asked included, by the class of the error.", []string{"node", "class"}, nil)
)

func (nodes) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{nodeState, nodeInFlight, nodeOpened, nodeLost, nodeFailures} {
		to <- d
	}
}

func (n nodes) Collect(to chan<- prometheus.Metric) {
	for _, node := range n.list() {
		to <- prometheus.MustNewConstMetric(nodeState, prometheus.GaugeValue, float64(node.State), node.Addr)
		to <- prometheus.MustNewConstMetric(nodeInFlight, prometheus.GaugeValue, float64(node.InFlight), node.Addr)
		to <- prometheus.MustNewConstMetric(nodeOpened, prometheus.CounterValue, float64(node.Opened), node.Addr)
		for how, count := range map[string]int64{"evicted": node.Lost.Evicted, "flushed": node.Lost.Flushed, "restarted": node.Lost.Restarts} {
			to <- prometheus.MustNewConstMetric(nodeLost, prometheus.CounterValue, float64(count), node.Addr, how)
		}
		for class, count := range node.Failures {
			to <- prometheus.MustNewConstMetric(nodeFailures, prometheus.CounterValue, float64(count), node.Addr, string(class))
		}
	}
}
