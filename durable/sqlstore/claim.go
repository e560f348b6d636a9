package sqlstore

import (
	"context"
	"database/sql/driver"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/wp-durable/wp-durable/durable"
)

type claimRow durable.Claim

func (r claimRow) write(t *tx) error {
	scope, key := []byte(r.Scope), []byte(r.Key)
	n, err := t.exec(insertClaim, scope, key, r.Value)
	if err == nil && n == 0 {
		var winner [1]driver.Value
		if err = t.query(selectClaim, winner[:], scope, key); err == nil {
			return &durable.ConflictError{Claim: &durable.Claim{Scope: r.Scope, Key: r.Key, Value: winner[0].(int64)}}
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
