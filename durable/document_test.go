package durable_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable"
)

type planV1 struct {
	Steps []string `json:"steps"`
}

func planDoc(version int, migrate func(int, json.RawMessage) (planV1, error)) *durable.Doc[planV1] {
	return durable.NewDoc(durable.DocSpec[planV1]{
		Kind: "test.plan", Version: version, Scope: durable.ScopeConversation, Migrate: migrate,
		Initial: func() planV1 { return planV1{Steps: []string{"look"}} },
	})
}

// writes counts the document writes so far.
func (h *history) writes() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, b := range h.batches {
		n += len(b.Documents)
	}
	return n
}

// Reading makes nothing; editing makes the document from its initial value, and
// what did not change is not written (E5.2).
func TestDoc_EditAndRead(t *testing.T) {
	t.Parallel()
	doc := planDoc(1, nil)
	r := newRig(t).open()
	c := r.conversation()
	owner := int64(c.ID())
	v, err := doc.Get(r.ctx, r.engine, owner)
	require.NoError(t, err)
	require.Equal(t, []string{"look"}, v.Steps)
	r.update(c, func(tx *durable.Tx) error {
		v, err := doc.Read(tx, owner)
		require.Equal(t, []string{"look"}, v.Steps)
		return err
	})
	require.Zero(t, r.history.writes(), "reading writes nothing")

	r.update(c, func(tx *durable.Tx) error {
		v, err := doc.Edit(tx, owner)
		require.NoError(t, err)
		v.Steps = append(v.Steps, "think")
		again, err := doc.Edit(tx, owner)
		require.NoError(t, err)
		require.Same(t, v, again, "one value in a commit")
		read, err := doc.Read(tx, owner)
		require.Equal(t, []string{"look", "think"}, read.Steps, "a commit sees its own writes")
		read.Steps[0] = "spoil"
		return err
	})
	require.Equal(t, 1, r.history.writes())
	v, err = doc.Get(r.ctx, r.engine, owner)
	require.NoError(t, err)
	require.Equal(t, []string{"look", "think"}, v.Steps)
	v.Steps[0] = "spoil"

	commits, _ := r.history.counts()
	r.update(c, func(tx *durable.Tx) error {
		v, err := doc.Edit(tx, owner)
		v.Steps = []string{"look", "think"} // another value that is the same
		return err
	})
	now, _ := r.history.counts()
	require.Equal(t, commits, now, "what did not change is not written")
	require.Error(t, c.Update(r.ctx, func(_ context.Context, tx *durable.Tx) error {
		v, err := doc.Edit(tx, owner)
		require.NoError(t, err)
		v.Steps = nil
		return errors.New("no")
	}))
	v, err = doc.Get(r.ctx, r.engine, owner)
	require.NoError(t, err)
	require.Equal(t, []string{"look", "think"}, v.Steps)
}

// A document of another tree is out of reach, and one kind has one type.
func TestDoc_Refused(t *testing.T) {
	t.Parallel()
	doc := planDoc(1, nil)
	other := durable.NewDoc(durable.DocSpec[int]{Kind: "test.plan", Scope: durable.ScopeConversation})
	r := newRig(t).open()
	c, apart := r.conversation(), r.conversation()
	r.update(c, func(tx *durable.Tx) error {
		_, err := doc.Edit(tx, int64(apart.ID()))
		require.ErrorIs(t, err, durable.ErrNotFound)
		_, err = doc.Edit(tx, int64(c.ID()))
		require.NoError(t, err)
		_, err = other.Edit(tx, int64(c.ID()))
		require.ErrorIs(t, err, durable.ErrInvalid)
		return nil
	})
	for name, spec := range map[string]durable.DocSpec[int]{
		"no kind":              {Scope: durable.ScopeConversation},
		"of ours":              {Kind: "pi.mine", Scope: durable.ScopeConversation},
		"no scope":             {Kind: "a"},
		"rewindable task":      {Kind: "a", Scope: durable.ScopeTask, History: durable.Rewindable},
		"fork asOf of a plain": {Kind: "a", Scope: durable.ScopeConversation, Fork: durable.ForkAsOf},
	} {
		require.Panics(t, func() { durable.NewDoc(spec) }, name)
	}
}

// A stored version that is newer than the code is not read and not lost; an
// older one is migrated in memory, and on disk with the next edit; documents
// that nobody knows keep their bytes (E5.3).
func TestDoc_Versions(t *testing.T) {
	t.Parallel()
	r := newRig(t).open()
	c := r.conversation()
	owner := int64(c.ID())
	key := durable.DocKey{Scope: durable.ScopeConversation, Owner: owner, Kind: "test.plan"}
	raw := func() durable.DocRecord {
		rec, err := r.history.Document(r.ctx, key)
		require.NoError(t, err)
		return rec
	}
	v2 := planDoc(2, nil)
	r.update(c, func(tx *durable.Tx) error { _, err := v2.Edit(tx, owner); return err })
	stored := raw()
	require.Equal(t, 2, stored.Version)

	v1 := planDoc(1, nil)
	_, err := v1.Get(r.ctx, r.engine, owner)
	require.ErrorIs(t, err, durable.ErrVersionNewer)
	r.update(c, func(tx *durable.Tx) error {
		_, err := v1.Edit(tx, owner)
		require.ErrorIs(t, err, durable.ErrVersionNewer)
		_, err = v1.Read(tx, owner)
		require.ErrorIs(t, err, durable.ErrVersionNewer)
		return nil
	})
	require.Equal(t, stored, raw(), "its bytes stay")

	v3 := planDoc(3, func(version int, value json.RawMessage) (planV1, error) {
		require.Equal(t, 2, version)
		var p planV1
		err := json.Unmarshal(value, &p)
		p.Steps = append(p.Steps, "migrated")
		return p, err
	})
	got, err := v3.Get(r.ctx, r.engine, owner)
	require.NoError(t, err)
	require.Equal(t, []string{"look", "migrated"}, got.Steps)
	require.Equal(t, stored, raw(), "reading migrates nothing on disk")
	r.update(c, func(tx *durable.Tx) error { _, err := v3.Edit(tx, owner); return err })
	require.Equal(t, 3, raw().Version, "an edit does, also one that changes nothing")
	require.JSONEq(t, `{"steps":["look","migrated"]}`, string(raw().Value))

	_, err = planDoc(4, nil).Get(r.ctx, r.engine, owner)
	require.ErrorIs(t, err, durable.ErrInvalid)
	_, err = planDoc(4, func(int, json.RawMessage) (planV1, error) { return planV1{}, errors.New("cannot") }).Get(r.ctx, r.engine, owner)
	require.ErrorContains(t, err, "cannot")
	r.model.Push(text("goes on"))
	require.Equal(t, "goes on", r.answer(r.send(c, "go")))
	require.Equal(t, 3, raw().Version)
}

// A rewindable document keeps every value, each at the entries of its commit
// (E5.4).
func TestDoc_Rewind(t *testing.T) {
	t.Parallel()
	doc := durable.NewDoc(durable.DocSpec[int]{Kind: "test.n", Scope: durable.ScopeConversation, History: durable.Rewindable})
	latest := durable.NewDoc(durable.DocSpec[int]{Kind: "test.latest", Scope: durable.ScopeConversation})
	r := newRig(t).open()
	c := r.conversation()
	owner := int64(c.ID())
	type point struct {
		at   durable.EntryID
		want int
	}
	var points []point
	entry := func(tx *durable.Tx) durable.EntryID {
		id, err := tx.AppendEntry(c.ID(), *note("a"))
		require.NoError(t, err)
		return id
	}
	edit := func(tx *durable.Tx, n int) {
		v, err := doc.Edit(tx, owner)
		require.NoError(t, err)
		*v = n
		l, err := latest.Edit(tx, owner)
		require.NoError(t, err)
		*l = n
	}
	r.update(c, func(tx *durable.Tx) error { points = append(points, point{entry(tx), 0}); return nil })
	for n := 1; n <= 3; n++ {
		r.update(c, func(tx *durable.Tx) error { // written with entries
			points = append(points, point{entry(tx), n * 10})
			edit(tx, n*10)
			points = append(points, point{entry(tx), n * 10})
			return nil
		})
		r.update(c, func(tx *durable.Tx) error { points = append(points, point{entry(tx), n * 10}); return nil })
		r.update(c, func(tx *durable.Tx) error { edit(tx, n*10+1); return nil }) // without
		r.update(c, func(tx *durable.Tx) error { points = append(points, point{entry(tx), n*10 + 1}); return nil })
	}
	r.restart()
	for _, p := range points {
		got, err := doc.GetAsOf(r.ctx, r.engine, c.ID(), p.at)
		require.NoError(t, err)
		require.Equal(t, p.want, got, "at entry %d", p.at)
	}
	got, err := latest.GetAsOf(r.ctx, r.engine, c.ID(), points[0].at)
	require.NoError(t, err)
	require.Zero(t, got, "no history is kept")
}

// A family has a document for each key (E5.1).
func TestDoc_Family(t *testing.T) {
	t.Parallel()
	doc := durable.NewDoc(durable.DocSpec[int]{Kind: "test.files", Scope: durable.ScopeConversation})
	r := newRig(t).open()
	c := r.conversation()
	r.update(c, func(tx *durable.Tx) error {
		for i, key := range []string{"a", "b", "c/d", "ü"} {
			v, err := doc.Member(key).Edit(tx, int64(c.ID()))
			require.NoError(t, err)
			*v = i + 1
		}
		return nil
	})
	for i, key := range []string{"a", "b", "c/d", "ü"} {
		v, err := doc.Member(key).Get(r.ctx, r.engine, int64(c.ID()))
		require.NoError(t, err)
		require.Equal(t, i+1, v)
	}
	v, err := doc.Get(r.ctx, r.engine, int64(c.ID()))
	require.NoError(t, err)
	require.Zero(t, v)
}

// A task's document ends with it, and none is written for one that has ended
// (E5.4).
func TestDoc_OfTask(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		doc := durable.NewDoc(durable.DocSpec[int]{Kind: "test.n", Scope: durable.ScopeTask})
		kind := phases("test.doc", map[string]func(context.Context, *stepRun) error{
			"a": func(ctx context.Context, run *stepRun) error {
				return move(ctx, run, func(tx *durable.Tx) (aStep, error) {
					v, err := doc.Edit(tx, int64(run.ID()))
					if err == nil {
						*v = 7
					}
					return run.Wait("b", 0, durable.WaitOptions{Signal: "go"}), err
				})
			},
			"b": func(ctx context.Context, run *stepRun) error {
				return move(ctx, run, func(tx *durable.Tx) (aStep, error) {
					v, err := doc.Edit(tx, int64(run.ID()))
					if err != nil {
						return aStep{}, err
					}
					*v++ // in the commit that ends it
					return run.Complete(*v), nil
				})
			},
		})
		r := newRig(t, kinds(kind)).open()
		c := r.conversation()
		id := r.start(c, kind, 0, durable.TaskOptions{})
		after(1)
		v, err := doc.Get(r.ctx, r.engine, int64(id))
		require.NoError(t, err)
		require.Equal(t, 7, v)
		r.restart()
		c = r.again(c)
		require.NoError(t, r.engine.Signal(r.ctx, id, "go", 0))
		require.Equal(t, 8, r.completed(c, id))
		v, err = doc.Get(r.ctx, r.engine, int64(id))
		require.NoError(t, err)
		require.Zero(t, v)
		err = c.Update(r.ctx, func(_ context.Context, tx *durable.Tx) error { _, err := doc.Edit(tx, int64(id)); return err })
		require.ErrorIs(t, err, durable.ErrNotFound)
		docs, err := r.history.Documents(r.ctx, durable.ScopeTask, int64(id))
		require.NoError(t, err)
		require.Empty(t, docs)
	})
}

// Changes of a global document by many trees at once are all there in the end
// (E4.1).
func TestDoc_Global(t *testing.T) {
	t.Parallel()
	doc := durable.NewDoc(durable.DocSpec[map[string]int]{Kind: "test.all", Scope: durable.ScopeGlobal})
	r := newRig(t).open()
	var wg sync.WaitGroup
	const trees, times = 8, 10
	for i := range trees {
		c := r.conversation()
		wg.Go(func() {
			for n := range times {
				set := func(v *map[string]int, name string) {
					if *v == nil {
						*v = map[string]int{}
					}
					(*v)["total"]++
					(*v)[name] = n
				}
				if err := doc.UpdateGlobal(r.ctx, r.engine, func(v *map[string]int) error { set(v, fmt.Sprint("u", i)); return nil }); err != nil {
					t.Error(err)
				}
				err := c.Update(r.ctx, func(_ context.Context, tx *durable.Tx) error {
					v, err := doc.Edit(tx, 0)
					if err != nil {
						return err
					}
					set(v, fmt.Sprint("e", i))
					_, err = tx.AppendEntry(c.ID(), *note("with it"))
					return err
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	got, err := doc.Get(r.ctx, r.engine, 0)
	require.NoError(t, err)
	require.Equal(t, 2*trees*times, got["total"])
	require.Len(t, got, 2*trees+1)
	require.ErrorContains(t, doc.UpdateGlobal(r.ctx, r.engine, func(*map[string]int) error { return errors.New("no") }), "no")
	require.ErrorContains(t, doc.UpdateGlobal(r.ctx, r.engine, func(*map[string]int) error { panic("boo") }), "boo")
	again, err := doc.Get(r.ctx, r.engine, 0)
	require.NoError(t, err)
	require.Equal(t, got, again)
}
