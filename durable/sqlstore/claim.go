package sqlstore

import (
	"context"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/wp-durable/wp-durable/durable"
)

type claimRow durable.Claim

func (r claimRow) write(t *tx) error {
	scope, key := []byte(r.Scope), []byte(r.Key)
	n, err := t.exec(insertClaim, scope, key, r.Value)
	if err == nil && n == 0 {
		winner := durable.Claim{Scope: r.Scope, Key: r.Key}
		if err = t.query(selectClaim, []any{&winner.Value}, scope, key); err == nil {
			return &durable.ConflictError{Claim: &winner}
		}
	}
	if err != nil {
		return fmt.Errorf("claim %s %q: %w", r.Scope, r.Key, err)
	}
	return nil
}

// Claimed returns the value of a claim.
func (s *Store) Claimed(ctx context.Context, scope, key string) (out int64, err error) {
	err = s.read(ctx, func(db *bun.DB) error {
		return db.NewSelect().Table("claims").Column("value").
			Where("scope = ?", []byte(scope)).Where("key = ?", []byte(key)).Scan(ctx, &out)
	})
	return out, wrap(err, "claim %s %q", scope, key)
}
