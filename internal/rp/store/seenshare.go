package store

import "time"

const (
	// agentAge is how long ago a node may have been heard of that counts as one that polls.
	agentAge = 2 * time.Hour
	// writerAge is how long ago a replica may have written that counts as one that is polled.
	writerAge = 2 * seenRound
)

// Share is how many nodes this replica will hear of, if those that any replica has heard of lately
// are spread evenly over the replicas that hear of some.
func (s *Seen) Share() int {
	now := s.Now()
	polled, wrote := minutes(now.Add(-agentAge)), minutes(now.Add(-writerAge))
	nodes, writers := 0, map[string]bool{s.replica: true}
	for i := range s.shards {
		shard := &s.shards[i]
		shard.mu.Lock()
		for _, h := range shard.nodes {
			if h.minutes >= polled {
				nodes++
			}
		}
		for name, at := range shard.others {
			if at >= wrote {
				writers[name] = true
			}
		}
		shard.mu.Unlock()
	}
	return (nodes + len(writers) - 1) / len(writers)
}
