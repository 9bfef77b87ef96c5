// One forward pass of an encoder, and the packing of its weights. Compiled once for each instruction
// set, with KERNELS its namespace and TABLE the name of its table of functions.
#include "encoder.h"

#include "attention.h"
#include "packing.h"
#include "rows.h"

namespace KERNELS {

using bertsmith::Block;
using bertsmith::Chunk;
using bertsmith::Plan;
using bertsmith::Team;

// What values are kept as: in products T, in attention, and within the feed-forward network.
template <class T>
struct Kept {
    using Attention = T;
    using Inner = T;
    static constexpr bool quantised = false;
};

template <>
struct Kept<Activation8> {
#ifdef HAS_BF16
    using Attention = bf16;
#else
    using Attention = float;
#endif
    using Inner = float;
    static constexpr bool quantised = true;
};

// Rows of the feed-forward network at once: their inner values stay in the L2 cache.
template <class T>
constexpr int INNER_ROWS = 8 * TILE_ROWS<T>;

// The widths of an encoder's rows, in values, filled up with zeros to whole vectors.
struct Widths {
    int head, head_filled, heads;
    long hidden, embedding, third, context, inner;
    int hidden_panels, third_panels, up_panels;

    explicit Widths(const bs_shape& s)
        : head(s.hidden / s.heads),
          head_filled(static_cast<int>(up_to(head, 16))),
          heads(s.heads),
          hidden(up_to(s.hidden, PANEL)),
          embedding(up_to(s.embedding ? s.embedding : s.hidden, PANEL)),
          third(up_to(static_cast<long>(heads) * head_filled, PANEL)),
          context(static_cast<long>(heads) * head_filled),
          inner(up_to(s.feed_forward, s.gated ? LANES : PANEL)),
          hidden_panels(static_cast<int>(hidden / PANEL)),
          third_panels(static_cast<int>(third / PANEL)),
          up_panels(static_cast<int>(inner / (s.gated ? LANES : PANEL))) {}
};

// Hands out parts of a block of memory; with none, counts what is needed.
class Parts {
public:
    explicit Parts(void* memory) : base_(static_cast<char*>(memory)) {}
    template <class T>
    T* take(long count) {
        char* here = base_ ? base_ + used_ : nullptr;
        used_ += up_to(count * static_cast<long>(sizeof(T)), 64);
        return reinterpret_cast<T*>(here);
    }
    // rows an odd number of cache lines apart, so that those of a tile lie in different sets of a cache
    template <class T>
    static long stride(long width) {
        const long lines = up_to(width * static_cast<long>(sizeof(T)), 64) / 64;
        return (lines | 1) * 64 / static_cast<long>(sizeof(T));
    }
    template <class T>
    Rows<T> rows(long count, long width) {
        const long apart = stride<T>(width);
        T* values = take<T>((count + ROWS_BEHIND<T>) * apart);
        if (values && BY_AMX<T>) clear_ends(values, count, width, apart);
        float* scale = take<float>(count);
        return {values, apart, scale, take<int32_t>(count)};
    }
    size_t used() const { return used_; }

private:
    // The rest of each row's last cache line, which AMX multiplies by zeros: what was there before could
    // be no number.
    template <class T>
    static void clear_ends(T* values, long count, long width, long apart) {
        const long filled = up_to(width, 64 / static_cast<long>(sizeof(T)));
        for (long r = 0; r < count && width < filled; r++)
            std::memset(static_cast<void*>(values + r * apart + width), 0, (filled - width) * sizeof(T));
    }

    char* base_;
    long used_ = 0;
};

// The memory that a chunk goes through the layers in.
template <class T>
struct Space {
    using A = typename Kept<T>::Attention;
    using N = typename Kept<T>::Inner;
    Rows<float> x;        // the residual stream
    Rows<T> input;        // of the next product
    Rows<A> qkv;          // queries, keys and values of a token beside each other
    Rows<A> context;      // what attention returns
    Rows<N> inner;        // after the GELU
    Rows<T> quantised;    // context or inner as int8
    float* row;           // a row for each thread
    Scratch<A> scratch;   // of this thread

    Space(Parts& parts, const Widths& w, const Chunk& chunk, int threads, int rank) {
        const long tokens = chunk.tokens;
        x = parts.rows<float>(tokens, w.hidden);
        input = parts.rows<T>(tokens, w.hidden > w.embedding ? w.hidden : w.embedding);
        qkv = parts.rows<A>(tokens, 3 * w.third);
        context = parts.rows<A>(tokens, w.context);
        const long inner_rows = tokens < INNER_ROWS<T> ? tokens : INNER_ROWS<T>;
        inner = parts.rows<N>(inner_rows, w.inner);
        if (Kept<T>::quantised) {
            const long context_size = (tokens + ROWS_BEHIND<T>) * Parts::stride<T>(w.context);
            const long inner_size = (inner_rows + ROWS_BEHIND<T>) * Parts::stride<T>(w.inner);
            quantised.values = parts.take<T>(context_size > inner_size ? context_size : inner_size);
            quantised.scale = parts.take<float>(tokens);
            quantised.zero = parts.take<int32_t>(tokens);
        }
        for (int thread = 0; thread < threads; thread++) {
            Scratch<A> own;
            float* own_row = parts.take<float>(w.hidden > w.embedding ? w.hidden : w.embedding);
            // behind the last key whole vectors are written; an odd number of panels, for the same reason
            // as that of cache lines between rows
            own.columns = ((chunk.longest + PANEL - 1) / PANEL + 1 | 1) * PANEL;
            const long depth = up_to(words<A>(w.head_filled), WORDS_TOGETHER<A>);
            own.keys = parts.take<A>(depth * own.columns * PER_WORD<A>);
            own.values = parts.take<A>(up_to(chunk.longest, KEYS_TOGETHER<A>) * w.head_filled);
            own.scores = parts.take<float>(TILE_ROWS<A> * own.columns);
            own.weights = parts.take<A>(TILE_ROWS<A> * own.columns);
            if (thread == rank) scratch = own, row = own_row;
        }
    }
};

// One thread's part of a chunk's way through the layers. `share` splits what a step does among the
// threads of the team, which wait for each other after it.
template <class T>
class Pass {
public:
    Pass(
        const bs_encoder& encoder, const bs_call& call, const Chunk& chunk, void* memory, Team& team,
        int rank
    )
        : encoder_(encoder), shape_(encoder.shape), call_(call), chunk_(chunk), team_(team),
          rank_(rank), w_(encoder.shape), parts_(memory), at_(parts_, w_, chunk, team.size, rank),
          rows_(static_cast<int>(chunk.tokens)) {}

    void run() {
        embed();
        keep_state(0);
        for (int number = 0; number < call_.layers; number++) {
            const bool last = number + 1 == shape_.layers;
            layer(number, last && call_.at);
            if (last && shape_.norm_before) {
                normalise_rows(encoder_.final_norm, true);
            }
            keep_state(number + 1);
        }
        if (call_.last) {
            const int64_t first = call_.at ? chunk_.first_place : chunk_.first_token;
            copy_out(call_.last + first * shape_.hidden);
        }
    }

private:
    using A = typename Kept<T>::Attention;

    Range share(int count) const {
        const auto cut = [&](int rank) {
            return static_cast<int>(static_cast<long>(count) * rank / team_.size);
        };
        return {cut(rank_), cut(rank_ + 1)};
    }

    void embed() {
        const int width = shape_.embedding ? shape_.embedding : shape_.hidden;
        const bool widened = encoder_.ends.widen.weight.place != BS_ABSENT;
        const Range own = share(rows_);
        for (int r = own.begin; r < own.end; r++) {
            const int64_t token = chunk_.first_token + r;
            sum_tables(token, width, at_.row);
            float* to = widened ? at_.row : at_.x.values + r * at_.x.stride;
            normalise(at_.row, to, width, encoder_.embedding_norm, shape_.epsilon);
            convert(to, static_cast<int>(up_to(width, LANES)), at_.input, r);
        }
        team_.wait();
        if (!widened) return;
        const auto use = [&](int r, long column, F low, F high) {
            float* to = at_.x.values + r * at_.x.stride + column;
            store(to, low);
            store(to + LANES, high);
        };
        product(at_.input, rows_, encoder_.widen, share(w_.hidden_panels), use);
        team_.wait();
        convert_rows();
    }

    void sum_tables(int64_t token, int width, float* to) const {
        const bs_ends& ends = encoder_.ends;
        const float* word = ends.tokens + call_.ids[token] * width;
        const int64_t kind = shape_.segments > 1 ? call_.segments[token] : 0;
        const int64_t place = call_.positions[token] + shape_.position_offset;
        for (int i = 0; i < width; i += LANES) {
            F value = load(word + i, width - i);
            if (ends.segments) value = value + load(ends.segments + kind * width + i, width - i);
            if (ends.positions) value = value + load(ends.positions + place * width + i, width - i);
            store(to + i, value);
        }
    }

    // Makes the rows of x what the next product reads, normed where there is a norm, which x keeps
    // or not.
    void normalise_rows(const Norm& norm, bool kept) {
        const Range own = share(rows_);
        for (int r = own.begin; r < own.end; r++) {
            float* x = at_.x.values + r * at_.x.stride;
            float* to = kept ? x : at_.row;
            normalise(x, to, shape_.hidden, norm, shape_.epsilon);
            convert(to, static_cast<int>(up_to(shape_.hidden, LANES)), at_.input, r);
        }
        team_.wait();
    }

    void convert_rows() {
        const Range own = share(rows_);
        const int width = static_cast<int>(up_to(shape_.hidden, LANES));
        for (int r = own.begin; r < own.end; r++)
            convert(at_.x.values + r * at_.x.stride, width, at_.input, r);
        team_.wait();
    }

    void layer(int number, bool places_only) {
        const Block& block = encoder_.blocks[number / (shape_.layers / shape_.blocks)];
        if (shape_.norm_before) {
            if (block.attention_norm.weight) normalise_rows(block.attention_norm, false);
            else if (number) convert_rows();
        }
        project(block, places_only);
        const bool local = shape_.reach >= 0 && number % shape_.global_every;
        const float* turns = local ? encoder_.ends.local_turns : encoder_.ends.turns;
        if (turns) turn(turns, places_only);
        attention(local, places_only);
        add_product(context(), rows_, block.output, 0);
        if (shape_.norm_before) normalise_rows(block.feed_forward_norm, false);
        else normalise_rows(block.attention_norm, true);
        feed_forward(block);
        if (!shape_.norm_before) normalise_rows(block.feed_forward_norm, true);
    }

    // Queries, keys and values; with `places_only` queries of these, whose rows take the place of all.
    void project(const Block& block, bool places_only) {
        const auto use = [&](int r, long column, F low, F high) {
            A* to = at_.qkv.values + r * at_.qkv.stride + column;
            store(to, low);
            store(to + LANES, high);
        };
        const int third = w_.third_panels;
        const Weights& weights = block.query_key_value;
        if (!places_only) {
            product(at_.input, rows_, weights, share(3 * third), use);
            team_.wait();
            return;
        }
        const Range own = share(2 * third);
        product(at_.input, rows_, weights, {third + own.begin, third + own.end}, use);
        team_.wait();
        if (rank_ == 0) gather();
        rows_ = static_cast<int>(chunk_.places);
        team_.wait();
        product(at_.input, rows_, weights, share(third), use);
        team_.wait();
    }

    // Places are in order, so that no row is overwritten before it is read.
    void gather() {
        for (int64_t p = 0; p < chunk_.places; p++) {
            const int64_t r = call_.at[chunk_.first_place + p] - chunk_.first_token;
            std::memmove(at_.x.values + p * at_.x.stride, at_.x.values + r * at_.x.stride, at_.x.stride * 4);
            std::memmove(
                at_.input.values + p * at_.input.stride, at_.input.values + r * at_.input.stride,
                at_.input.stride * sizeof(T)
            );
            at_.input.scale[p] = at_.input.scale[r];
            at_.input.zero[p] = at_.input.zero[r];
        }
    }

    void turn(const float* turns, bool places_only) {
        const Range queries = share(rows_), keys = share(static_cast<int>(chunk_.tokens));
        for (int r = queries.begin; r < queries.end; r++) {
            const int64_t token = places_only ? call_.at[chunk_.first_place + r] : chunk_.first_token + r;
            turn_heads(turns, call_.positions[token], at_.qkv.values + r * at_.qkv.stride);
        }
        for (int r = keys.begin; r < keys.end; r++) {
            const int64_t place = call_.positions[chunk_.first_token + r];
            turn_heads(turns, place, at_.qkv.values + r * at_.qkv.stride + w_.third);
        }
        team_.wait();
    }

    void turn_heads(const float* turns, int64_t place, A* values) const {
        const int half = w_.head / 2;
        const float* cosine = turns + place * half;
        const float* sine = cosine + static_cast<int64_t>(encoder_.ends.turned_positions) * half;
        for (int head = 0; head < w_.heads; head++, values += w_.head_filled)
            for (int i = 0; i < half; i += LANES) {
                const int n = half - i;
                const F first = load(values + i, n), second = load(values + half + i, n);
                const F c = load(cosine + i, n), s = load(sine + i, n);
                store(values + i, first * c - second * s, n);
                store(values + half + i, second * c + first * s, n);
            }
    }

    void attention(bool local, bool places_only) {
        Sequence<A> s;
        s.stride = at_.qkv.stride;
        s.to_stride = at_.context.stride;
        s.causal = shape_.causal;
        s.reach = local ? shape_.reach : -1;
        const int64_t* offsets = call_.offsets + chunk_.first_sequence;
        int64_t place = chunk_.first_place;
        const int64_t end = chunk_.first_place + chunk_.places;
        int task = 0;
        for (int64_t n = 0; n < chunk_.sequences; n++) {
            const int64_t first = offsets[n] - chunk_.first_token;
            s.keys = static_cast<int>(offsets[n + 1] - offsets[n]);
            int64_t query = first;
            s.queries = s.keys;
            s.places = nullptr;
            if (places_only) {
                query = place - chunk_.first_place;
                s.places = call_.at + place;
                s.first = offsets[n];
                while (place < end && call_.at[place] < offsets[n + 1]) place++;
                s.queries = static_cast<int>(place - chunk_.first_place - query);
            }
            for (int head = 0; head < w_.heads; head++, task++) {
                if (task % team_.size != rank_ || !s.queries) continue;
                const long column = static_cast<long>(head) * w_.head_filled;
                s.query = at_.qkv.values + query * s.stride + column;
                s.key = at_.qkv.values + first * s.stride + w_.third + column;
                s.value = s.key + w_.third;
                s.to = at_.context.values + query * s.to_stride + column;
                attend(s, w_.head_filled, at_.scratch);
            }
        }
        team_.wait();
    }

    // What attention returned, as the next product reads it.
    Rows<T> context() {
        if constexpr (Kept<T>::quantised) {
            return quantise(at_.context, rows_, static_cast<int>(w_.context));
        } else {
            return at_.context;
        }
    }

    template <class S>
    Rows<T> quantise(const Rows<S>& from, int rows, int width) {
        Rows<T> to = at_.quantised;
        to.stride = Parts::stride<T>(width);
        const Range own = share(rows);
        for (int r = own.begin; r < own.end; r++)
            convert(from.values + r * from.stride, width, to, r);
        team_.wait();
        return to;
    }

    // Adds a product to rows of x from the row `first`.
    void add_product(const Rows<T>& in, int rows, const Weights& weights, int first) {
        float* x = at_.x.values + first * at_.x.stride;
        const auto use = [&](int r, long column, F low, F high) {
            float* to = x + r * at_.x.stride + column;
            store(to, load(to) + low);
            store(to + LANES, load(to + LANES) + high);
        };
        product(in, rows, weights, share(w_.hidden_panels), use);
        team_.wait();
    }

    void feed_forward(const Block& block) {
        for (int first = 0; first < rows_; first += INNER_ROWS<T>) {
            const int rows = rows_ - first < INNER_ROWS<T> ? rows_ - first : INNER_ROWS<T>;
            const Rows<T> in = at_.input.from(first);
            const Range panels = share(w_.up_panels);
            auto* inner = at_.inner.values;
            const long stride = at_.inner.stride;
            const auto plain = [&](auto gelu) {
                product(in, rows, block.up, panels, [&](int r, long column, F low, F high) {
                    store(inner + r * stride + column, gelu(low));
                    store(inner + r * stride + column + LANES, gelu(high));
                });
            };
            const auto gated = [&](auto gelu) {
                product(in, rows, block.up, panels, [&](int r, long column, F low, F high) {
                    store(inner + r * stride + column / 2, gelu(low) * high);
                });
            };
            const auto exact = [](F x) { return exact_gelu<ACCURACY<T>>(x); };
            const auto by_tanh = [](F x) { return tanh_gelu<ACCURACY<T>>(x); };
            if (shape_.gated) shape_.tanh_gelu ? gated(by_tanh) : gated(exact);
            else shape_.tanh_gelu ? plain(by_tanh) : plain(exact);
            team_.wait();
            if constexpr (Kept<T>::quantised) {
                add_product(quantise(at_.inner, rows, static_cast<int>(w_.inner)), rows, block.down, first);
            } else {
                add_product(at_.inner, rows, block.down, first);
            }
        }
    }

    void keep_state(int number) {
        if (!call_.states || !call_.states[number]) return;
        copy_out(call_.states[number] + chunk_.first_token * shape_.hidden);
        team_.wait();
    }

    void copy_out(float* to) const {
        const Range own = share(rows_);
        for (int r = own.begin; r < own.end; r++)
            std::memcpy(
                to + static_cast<long>(r) * shape_.hidden, at_.x.values + r * at_.x.stride,
                shape_.hidden * sizeof(float)
            );
    }

    const bs_encoder& encoder_;
    const bs_shape& shape_;
    const bs_call& call_;
    const Chunk& chunk_;
    Team& team_;
    const int rank_;
    const Widths w_;
    Parts parts_;
    Space<T> at_;
    int rows_;  // of x that are still computed
};

// Packs an encoder's weights for products of T.
template <class T>
class Packing {
public:
    Packing(bs_encoder& encoder, Plan& plan)
        : shape_(encoder.shape), encoder_(encoder), arena_(encoder.arena), plan_(plan), w_(encoder.shape) {}

    bool ends() {
        const bs_ends& ends = encoder_.ends;
        const int width = shape_.embedding ? shape_.embedding : shape_.hidden;
        encoder_.embedding_norm = packed_norm(arena_, ends.norm.weight.values, ends.norm.bias.values, width);
        encoder_.final_norm =
            packed_norm(arena_, ends.final_norm.weight.values, ends.final_norm.bias.values, shape_.hidden);
        encoder_.blocks = arena_.take<Block>(shape_.blocks);
        if (ends.widen.weight.place == BS_ABSENT) return !arena_.failed;
        encoder_.widen = add(
            plain_columns(ends.widen, shape_.hidden), plain_sources(width), width, w_.hidden_panels,
            up_to(width, LANES)
        );
        if (failed()) return false;
        for (int panel = 0; panel < w_.hidden_panels; panel++)
            pack_panel<T>(plan_.matrices[0], panel, nullptr);
        return true;
    }

    Failure block(int number, const bs_block& from) {
        tensors_ = &from.query.weight;
        Block to{};
        const int hidden = shape_.hidden, inner = shape_.feed_forward;
        to.query_key_value = add(
            head_columns(from), plain_sources(hidden), hidden, 3 * w_.third_panels, up_to(hidden, LANES)
        );
        to.output = add(
            plain_columns(from.output, hidden), context_sources(), hidden, w_.hidden_panels, w_.context
        );
        const bool gated = from.gate.weight.place != BS_ABSENT;
        to.up = add(
            gated ? gated_columns(from.up, from.gate) : plain_columns(from.up, inner),
            plain_sources(hidden), hidden, w_.up_panels, up_to(hidden, LANES)
        );
        to.down = add(
            plain_columns(from.down, hidden), plain_sources(inner), inner, w_.hidden_panels, w_.inner
        );
        to.attention_norm = norm(from.attention_norm);
        to.feed_forward_norm = norm(from.feed_forward_norm);
        if (failed() && !failure_.status) failure_.status = BS_NO_MEMORY;
        encoder_.blocks[number] = to;
        return failure_;
    }

private:
    bool failed() const { return arena_.failed || plan_.memory.failed; }

    // Plans a matrix, whose tensors have rows of `length` numbers.
    Weights add(const Column* columns, const int32_t* sources, long length, int panels, long inputs) {
        const Weights to = empty_panels<T>(arena_, panels, inputs);
        if (failed()) return to;
        size_t most = 0;
        for (long c = 0; c < static_cast<long>(panels) * PANEL; c++) {
            const size_t room = columns[c].tensor ? room_of(*columns[c].tensor) : 0;
            most = room > most ? room : most;
        }
        const size_t room = most * length * PANEL;
        plan_.room = room > plan_.room ? room : plan_.room;
        plan_.matrices[count_++] = {columns, sources, inputs, length, to};
        plan_.panels += panels;
        return to;
    }

    // Numbers that are needed at once, null where there are none.
    const float* values(const bs_tensor& from, long count) {
        if (!in_file(from)) return from.values;
        float* memory = plan_.memory.take<float>(3 * count);
        if (plan_.memory.failed || failure_.status) return nullptr;
        failure_ = read_numbers(from, 0, count, memory);
        failure_.tensor = static_cast<int32_t>(&from - tensors_);
        return failure_.status ? nullptr : memory;
    }

    Norm norm(const bs_affine& from) {
        return packed_norm(
            arena_, values(from.weight, shape_.hidden), values(from.bias, shape_.hidden), shape_.hidden
        );
    }

    const int32_t* plain_sources(long inputs) {
        const long all = up_to(inputs, PANEL);
        int32_t* sources = plan_.memory.take<int32_t>(all);
        if (failed()) return sources;
        for (long k = 0; k < all; k++) sources[k] = k < inputs ? static_cast<int32_t>(k) : -1;
        return sources;
    }

    const int32_t* context_sources() {
        int32_t* sources = plan_.memory.take<int32_t>(w_.context);
        if (failed()) return sources;
        for (long k = 0; k < w_.context; k++) {
            const long head = k / w_.head_filled, i = k % w_.head_filled;
            sources[k] = i < w_.head ? static_cast<int32_t>(head * w_.head + i) : -1;
        }
        return sources;
    }

    static Column column(const bs_affine& from, const float* bias, long row, float factor) {
        return {&from.weight, row, bias ? bias[row] : 0.0f, factor};
    }

    const Column* plain_columns(const bs_affine& from, long outputs) {
        const long all = up_to(outputs, PANEL);
        Column* columns = plan_.memory.take<Column>(all);
        const float* bias = values(from.bias, outputs);
        if (failed()) return columns;
        for (long c = 0; c < all; c++)
            columns[c] = c < outputs ? column(from, bias, c, 1.0f) : Column{};
        return columns;
    }

    // Every head filled up with zeros, all of them to whole panels. Scores are powers of 2.
    const Column* head_columns(const bs_block& from) {
        const float scale = 1.4426950408889634f / __builtin_sqrtf(static_cast<float>(w_.head));
        Column* columns = plan_.memory.take<Column>(3 * w_.third);
        Column* next = columns;
        const bs_affine* thirds[] = {&from.query, &from.key, &from.value};
        for (const bs_affine* one : thirds) {
            const float* bias = values(one->bias, shape_.hidden);
            if (failed()) return columns;
            for (long c = 0; c < w_.third; c++) {
                const long head = c / w_.head_filled, i = c % w_.head_filled;
                const bool real = head < w_.heads && i < w_.head;
                const float factor = one == &from.query ? scale : 1.0f;
                *next++ = real ? column(*one, bias, head * w_.head + i, factor) : Column{};
            }
        }
        return columns;
    }

    // In each panel a vector of one matrix and one of the other.
    const Column* gated_columns(const bs_affine& up, const bs_affine& gate) {
        const long outputs = shape_.feed_forward;
        Column* columns = plan_.memory.take<Column>(2 * w_.inner);
        const float* biases[] = {values(up.bias, outputs), values(gate.bias, outputs)};
        if (failed()) return columns;
        for (long c = 0; c < 2 * w_.inner; c++) {
            const long output = c / PANEL * LANES + c % LANES;
            const bool second = c % PANEL >= LANES;
            columns[c] = output < outputs ? column(second ? gate : up, biases[second], output, 1.0f) : Column{};
        }
        return columns;
    }

    const bs_shape& shape_;
    bs_encoder& encoder_;
    Arena& arena_;
    Plan& plan_;
    const Widths w_;
    const bs_tensor* tensors_ = nullptr;  // of the block
    Failure failure_;
    int count_ = 0;
};

// Calls `use` with the type that products of a precision read.
template <class Use>
auto by_precision(int32_t precision, Use&& use) {
    if (precision == BS_INT8) return use(Activation8{});
#ifdef HAS_BF16
    if (precision == BS_BF16) return use(bf16{});
#endif
    return use(float{});
}

static bool prepare(bs_encoder& encoder) {
    return by_precision(encoder.shape.precision, [&](auto kind) {
        Plan plan;
        return Packing<decltype(kind)>(encoder, plan).ends();
    });
}

static Failure plan_block(bs_encoder& encoder, int number, const bs_block& weights, Plan& plan) {
    return by_precision(encoder.shape.precision, [&](auto kind) {
        return Packing<decltype(kind)>(encoder, plan).block(number, weights);
    });
}

static Failure pack_one(
    const bs_encoder& encoder, const bs_block& weights, const Plan& plan, int panel, void* memory
) {
    const Matrix* matrix = plan.matrices;
    for (; panel >= matrix->to.panels; matrix++) panel -= matrix->to.panels;
    Failure failure = by_precision(encoder.shape.precision, [&](auto kind) {
        return pack_panel<decltype(kind)>(*matrix, panel, static_cast<float*>(memory));
    });
    if (failure.status) {
        const Column& column = matrix->columns[static_cast<long>(panel) * PANEL + failure.tensor];
        failure.tensor = static_cast<int32_t>(column.tensor - &weights.query.weight);
    }
    return failure;
}

static size_t memory(const bs_encoder& encoder, const Chunk& chunk, int threads) {
    return by_precision(encoder.shape.precision, [&](auto kind) {
        Parts parts(nullptr);
        Space<decltype(kind)>(parts, Widths(encoder.shape), chunk, threads, 0);
        return parts.used();
    });
}

static void forward(
    const bs_encoder& encoder, const bs_call& call, const Chunk& chunk, void* memory, Team& team,
    int rank
) {
    by_precision(encoder.shape.precision, [&](auto kind) {
        [[maybe_unused]] const Tiled<BY_AMX<decltype(kind)>> tiled{};
        Pass<decltype(kind)>(encoder, call, chunk, memory, team, rank).run();
    });
}

// Every height and width of tile against plain loops, with numbers that no precision rounds.
template <class T>
static bool tiles_are_right() {
    // three times the words that AMX multiplies at once
    constexpr int DEPTH = 48 * PER_WORD<T>;
    using Weight = typename Product<T>::Weight;
    using Sum = typename Product<T>::Sum;
    constexpr int ROWS = TILE_ROWS<T>;
    [[maybe_unused]] const Tiled<BY_AMX<T>> tiled{};
    T left[ROWS * DEPTH];
    Weight right[DEPTH * PANEL];
    Sum sums[ROWS * PANEL];
    int a[ROWS][DEPTH], b[DEPTH][PANEL];
    uint32_t random = 1;
    const auto next = [&] { return static_cast<int>((random = random * 1664525 + 1013904223) >> 28); };
    for (int r = 0; r < ROWS; r++)
        for (int k = 0; k < DEPTH; k++) {
            a[r][k] = next() + (Product<T>::whole_numbers ? 239 : -9);
            write(left + r * DEPTH + k, static_cast<float>(a[r][k]));
        }
    for (int k = 0; k < DEPTH; k++)
        for (int c = 0; c < PANEL; c++) {
            b[k][c] = next() - 8;
            write(right + (k / PER_WORD<T> * PANEL + c) * PER_WORD<T> + k % PER_WORD<T>, static_cast<float>(b[k][c]));
        }
    for (int rows = 1; rows <= ROWS; rows++)
        for (int width = LANES; width <= PANEL; width += LANES) {
            const long words = DEPTH / PER_WORD<T>;
            if (width == LANES) compute_tile<T, 1>(rows, left, DEPTH, right, PANEL, words, sums, PANEL);
            else compute_tile<T, 2>(rows, left, DEPTH, right, PANEL, words, sums, PANEL);
            for (int r = 0; r < rows; r++)
                for (int c = 0; c < width; c++) {
                    int expected = 0;
                    for (int k = 0; k < DEPTH; k++) expected += a[r][k] * b[k][c];
                    if (sums[r * PANEL + c] != static_cast<Sum>(expected)) return false;
                }
        }
    return true;
}

static bool self_test() {
#ifdef HAS_BF16
    if (!tiles_are_right<bf16>()) return false;
#endif
    return tiles_are_right<float>() && tiles_are_right<Activation8>();
}

}  // namespace KERNELS

namespace bertsmith {
const Kernels TABLE = {
    KERNELS::self_test, KERNELS::prepare, KERNELS::plan_block, KERNELS::pack_one,
    KERNELS::memory, KERNELS::forward
};
}
