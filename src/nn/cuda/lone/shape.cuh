// One token of one row through LAYERS blocks of a decoder: y = x + output(attention(qkv(norm(x)))), and of that y + down(gate * up of
// norm(y)). BLOCKS thread blocks, all of which run at once, wait for each other where they need what the others have; a thread of each
// meanwhile goes on fetching its share of the matrices, which wait for nothing: memory is hardly ever idle.
//
// x and out [HIDDEN], matrices [outputs, inputs], keys and values [KV, capacity, DIM] of the `position` positions before, from column `start` on;
// those of the new one are written after them. `turns` are zeros, [ALL_COUNTERS], COUNTERS for each layer; as many are left in next_turns. scratch is
// nobody else's.
constexpr int WIDE = QUERIES * DIM;
constexpr int GROUP = QUERIES / KV;
constexpr int MEETINGS = 5;
static_assert(MEETINGS + KV <= COUNTERS, "a counter for each meeting, and for each key head");

// In scratch, by floats; what is bfloat16 takes half of its place.
constexpr int QKV_AT = 0;
constexpr int SEEN_AT = QKV_AT + WIDE + 2 * KV * DIM;
constexpr int MIDDLE_AT = SEEN_AT + WIDE;
constexpr int INNER_AT = MIDDLE_AT + HIDDEN;
constexpr int STREAM_AT = INNER_AT + INNER;
constexpr int TOPS_AT = STREAM_AT + HIDDEN;
constexpr int SUMS_AT = TOPS_AT + 2 * QUERIES * SHARES;
