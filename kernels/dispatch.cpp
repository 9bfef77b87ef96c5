// The C functions: the choice of instruction set, the cutting of batches into chunks, and threads.
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#include "encoder.h"
#include "threads.h"

namespace bertsmith {
namespace {

constexpr size_t LINE = 64;
#ifdef __SANITIZE_ADDRESS__
// each block by itself, so that what is read beyond it is found
constexpr size_t PAGE = LINE, CHUNK = 4 * LINE, SMALL_CHUNK = CHUNK;
#else
// What a chunk has left that is too small for the next block is lost, but no memory as long as
// nobody writes there; of small chunks a fifth of all pages would begin with a block's end.
constexpr size_t PAGE = size_t{1} << 21, CHUNK = 32 * PAGE, SMALL_CHUNK = size_t{1} << 16;
#endif

size_t rounded_up(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

// Memory from the start of a cache line or page, or null.
void* allocate(size_t bytes, size_t to = LINE) {
    void* memory = nullptr;
    return posix_memalign(&memory, to, std::max(bytes, LINE)) ? nullptr : memory;
}

}  // namespace

// Weights lie in large pages, since each text reads all of them from end to end: pages of 4 KiB are
// too many for the processor to keep their addresses at hand. Linux gives small ones where it has
// no large one left.
void* Arena::block(size_t bytes) {
    constexpr size_t MOST = size_t{1} << 46;
    if (bytes < MOST) bytes = rounded_up(bytes, LINE);
    if (bytes > left_) {
        // the link lies before the first block, in a cache line of its own
        const size_t page = lasting_ ? PAGE : LINE;
        const size_t size = rounded_up(std::max(bytes + LINE, lasting_ ? CHUNK : SMALL_CHUNK), page);
        char* memory = bytes < MOST ? static_cast<char*>(allocate(size, page)) : nullptr;
        if (!memory) {
            failed = true;
            return nullptr;
        }
#ifdef MADV_HUGEPAGE
        if (page > LINE) madvise(memory, size, MADV_HUGEPAGE);
#endif
        last_ = new (memory) Link{last_};
        next_ = memory + LINE;
        left_ = size - LINE;
    }
    void* block = next_;
    next_ += bytes;
    left_ -= bytes;
    return block;
}

Arena::~Arena() {
    while (last_) {
        Link* before = last_->before;
        free(last_);
        last_ = before;
    }
}

Failure read_file(int file, int64_t offset, void* to, size_t bytes) {
    for (auto* next = static_cast<char*>(to); bytes;) {
        const ssize_t count = pread(file, next, bytes, offset);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return {BS_UNREADABLE, 0, errno};
        if (!count) return {BS_SHORT};
        next += count;
        offset += count;
        bytes -= static_cast<size_t>(count);
    }
    return {};
}

namespace {

// Memory of a thread, kept from call to call.
class Workspace {
public:
    ~Workspace() { free(memory_); }
    void* of_size(size_t bytes) {
        if (bytes > size_) {
            free(memory_);
            memory_ = allocate(bytes);
            size_ = memory_ ? bytes : 0;
        }
        return memory_;
    }

private:
    void* memory_ = nullptr;
    size_t size_ = 0;
};

thread_local Workspace workspace;

// Asks Linux for AMX, which a process gets for all its threads or not at all. The library was compiled
// with these kernels where the compiler knows them.
bool has_amx() {
#ifdef WITH_AMX
    constexpr int ASK_FOR_STATE = 0x1023, TILES = 18;
    return __builtin_cpu_supports("amx-tile") && __builtin_cpu_supports("amx-bf16") &&
           __builtin_cpu_supports("amx-int8") && !syscall(SYS_arch_prctl, ASK_FOR_STATE, TILES);
#else
    return false;
#endif
}

int32_t detected() {
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    const bool bf16 =
        __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni");
    if (!avx2 || !avx512) return avx2 ? BS_AVX2 : BS_NOTHING;
    if (!bf16) return BS_AVX512;
    return has_amx() ? BS_AMX : BS_AVX512_BF16;
}

const Kernels* kernels_of(int32_t instruction_set) {
    static const Kernels* const all[] = {
        nullptr, &avx2_kernels, &avx512_kernels, &avx512_bf16_kernels,
#ifdef WITH_AMX
        &amx_kernels,
#endif
    };
    return all[instruction_set];
}

CrossEntropy losses_of(int32_t instruction_set) {
    static const CrossEntropy all[] = {nullptr, avx2_losses, avx512_losses, avx512_bf16_losses};
    return all[std::min<int32_t>(instruction_set, BS_AVX512_BF16)];
}

DropoutMasks masks_of(int32_t instruction_set) {
    return instruction_set < BS_AVX512 ? avx2_masks : avx512_masks;
}

int32_t usable() {
    int32_t best = detected();
    if (const char* asked = getenv("BERTSMITH_KERNELS")) {
        if (!strcmp(asked, "none")) best = BS_NOTHING;
        if (!strcmp(asked, "avx2")) best = std::min<int32_t>(best, BS_AVX2);
        if (!strcmp(asked, "avx512")) best = std::min<int32_t>(best, BS_AVX512);
        if (!strcmp(asked, "avx512-bf16")) best = std::min<int32_t>(best, BS_AVX512_BF16);
    }
    // each of them may be asked for
    for (int32_t set = BS_AVX2; set <= best; set++)
        if (!kernels_of(set)->self_test()) return BS_WRONG;
    return best;
}

const int32_t best_instruction_set = usable();

int32_t check(const bs_encoder& encoder, const bs_call& call) {
    const bs_shape& shape = encoder.shape;
    if (call.tokens < 0 || call.sequences < 0 || call.tokens > INT32_MAX) return BS_BAD_OFFSETS;
    if (call.offsets[0] != 0 || call.offsets[call.sequences] != call.tokens) return BS_BAD_OFFSETS;
    for (int64_t i = 0; i < call.sequences; i++)
        if (call.offsets[i + 1] < call.offsets[i]) return BS_BAD_OFFSETS;
    const int64_t tables = shape.position_rows - shape.position_offset;
    const int64_t positions = shape.position_rows ? tables : encoder.ends.turned_positions;
    for (int64_t i = 0; i < call.tokens; i++) {
        if (call.ids[i] < 0 || call.ids[i] >= shape.vocabulary) return BS_BAD_TOKEN;
        if (shape.segments > 1 && (call.segments[i] < 0 || call.segments[i] >= shape.segments))
            return BS_BAD_SEGMENT;
        if (positions && (call.positions[i] < 0 || call.positions[i] >= positions))
            return BS_BAD_POSITION;
    }
    if (!call.at) return BS_OK;
    for (int64_t i = 0; i < call.places; i++)
        if (call.at[i] < 0 || call.at[i] >= call.tokens || (i && call.at[i] <= call.at[i - 1]))
            return BS_BAD_PLACES;
    return BS_OK;
}

// Tokens that a chunk has, about: what a layer of them is computed from stays in an L2 cache of 1 MB.
int64_t largest_chunk(const bs_shape& shape) {
    return shape.hidden <= 512 ? 256 : 128;
}

// Cuts a batch into about `count` chunks: a sequence belongs to the one that its middle lies in.
std::vector<Chunk> cut(const bs_call& call, int64_t count) {
    std::vector<Chunk> chunks;
    int64_t place = 0, last = -1;
    for (int64_t i = 0; i < call.sequences; i++) {
        const int64_t begin = call.offsets[i], end = call.offsets[i + 1];
        const int64_t number = (begin + end) * count / (2 * call.tokens + 1);
        if (number != last) chunks.push_back({i, 0, begin, 0, place, 0, 0});
        last = number;
        Chunk& chunk = chunks.back();
        chunk.sequences++;
        chunk.tokens += end - begin;
        chunk.longest = std::max(chunk.longest, end - begin);
        for (; call.at && place < call.places && call.at[place] < end; place++) chunk.places++;
    }
    return chunks;
}

// Computes the chunks, each by one thread that takes the next when it is done.
int32_t separately(const bs_encoder& encoder, const bs_call& call, std::vector<Chunk>& chunks) {
    // those that take longest first
    std::stable_sort(chunks.begin(), chunks.end(), [](const Chunk& a, const Chunk& b) {
        return a.tokens * a.longest > b.tokens * b.longest;
    });
    std::atomic<size_t> next{0};
    std::atomic<int32_t> status{BS_OK};
    const auto work = [&](int, int) {
        for (size_t i; (i = next++) < chunks.size();) {
            void* memory = workspace.of_size(encoder.kernels->memory(encoder, chunks[i], 1));
            if (!memory) {
                status = BS_NO_MEMORY;
                return;
            }
            Team alone(1);
            encoder.kernels->forward(encoder, call, chunks[i], memory, alone, 0);
        }
    };
    run_threads(std::min<int64_t>(call.threads, static_cast<int64_t>(chunks.size())), work);
    return status;
}

// Computes one chunk after another, each by all threads.
int32_t together(const bs_encoder& encoder, const bs_call& call, const std::vector<Chunk>& chunks) {
    size_t bytes = 0;
    for (const Chunk& chunk : chunks)
        bytes = std::max(bytes, encoder.kernels->memory(encoder, chunk, call.threads));
    void* memory = workspace.of_size(bytes);
    if (!memory) return BS_NO_MEMORY;
    Team* team = nullptr;
    alignas(Team) char place[sizeof(Team)];
    const auto start = [&](int size) { team = new (place) Team(size); };
    const auto work = [&](int rank, int) {
        for (const Chunk& chunk : chunks) {
            encoder.kernels->forward(encoder, call, chunk, memory, *team, rank);
            team->wait();
        }
    };
    run_threads(call.threads, work, start);
    return BS_OK;
}

int64_t now() {
    return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Computes a batch whose chunks are too few or too unequal for the threads, by one thread or by all
// of them together, whichever was faster lately; every 16th call tries the other. After a rest
// threads sleep and caches hold other things, so times then are kept apart: else whichever way came
// first after a rest would look slow for long. The results are the same to the last bit.
int32_t quickest(bs_encoder& encoder, const bs_call& call, std::vector<Chunk>& chunks) {
    constexpr int64_t REST = 2'000'000;
    const int64_t begin = now();
    const int64_t rested = begin - __atomic_load_n(&encoder.last_end, __ATOMIC_RELAXED) > REST;
    Trials& trials = encoder.trials[rested];
    const int size = 63 - __builtin_clzll(static_cast<uint64_t>(call.tokens));
    const uint32_t number = __atomic_fetch_add(&trials.calls[size], 1, __ATOMIC_RELAXED);
    int64_t* times[2] = {&trials.nanoseconds[0][size], &trials.nanoseconds[1][size]};
    const auto time_of = [&](int way) { return __atomic_load_n(times[way], __ATOMIC_RELAXED); };
    const int better = time_of(1) < time_of(0);
    const int way = number < 4 ? number % 2 : number % 16 == 0 ? !better : better;
    const int32_t status = way ? together(encoder, call, chunks) : separately(encoder, call, chunks);
    const int64_t end = now(), taken = end - begin, before = time_of(way);
    __atomic_store_n(&encoder.last_end, end, __ATOMIC_RELAXED);
    // a single slow call, such as the first, counts for little
    const int64_t after = number < 4 || taken < before ? taken : before + (taken - before) / 4;
    __atomic_store_n(times[way], after, __ATOMIC_RELAXED);
    return status;
}

// The groups of rows of a call, which threads take one by one: one of them may start late.
struct Losses {
    const bs_losses& call;
    CrossEntropy kernel;
    std::atomic<int64_t> next{0};
    std::atomic<int32_t> status{BS_OK};

    void compute() {
        auto* wide = static_cast<float*>(workspace.of_size((call.classes + 16) * sizeof(float)));
        if (!wide) {
            status = BS_NO_MEMORY;
            return;
        }
        for (int64_t group; (group = next++) < call.groups;) kernel(call, group, wide);
    }
};

struct Masks {
    const bs_masks& call;
    DropoutMasks kernel;
    std::atomic<int64_t> next{0};
    std::atomic<int32_t> status{BS_OK};

    void compute() {
        constexpr int64_t PART = 1 << 16;
        for (int64_t begin; (begin = next.fetch_add(PART)) < call.count;)
            kernel(call, begin, std::min(begin + PART, call.count));
    }
};

// Lets threads compute work, as many as the call allows if it is worth `most` of them.
template <class Call, class Work>
int32_t compute(const Call& call, int64_t most, Work& work) {
    most = std::min<int64_t>(call.threads, most);
    if (call.parallel && most > 1) {
        const auto one = [](void* data) { static_cast<Work*>(data)->compute(); };
        // as many as its other work has: with fewer, GNU's ends the others and has to start them again
        call.parallel(one, &work, static_cast<unsigned>(call.threads), 0);
        return work.status;
    }
    try {
        run_threads(static_cast<int>(std::max<int64_t>(most, 1)), [&](int, int) { work.compute(); });
    } catch (const std::bad_alloc&) {
        return BS_NO_MEMORY;
    }
    return work.status;
}

}  // namespace
}  // namespace bertsmith

using namespace bertsmith;

void bs_interface(int64_t found[7]) {
    found[0] = BS_INTERFACE;
    found[1] = sizeof(bs_shape);
    found[2] = sizeof(bs_ends);
    found[3] = sizeof(bs_block);
    found[4] = sizeof(bs_call);
    found[5] = sizeof(bs_losses);
    found[6] = sizeof(bs_masks);
}

int32_t bs_instruction_set(void) { return best_instruction_set; }

bs_encoder* bs_encoder_new(const bs_shape* shape, const bs_ends* ends) {
    const int32_t asked = shape->instruction_set;
    const bool usable = asked > BS_NOTHING && asked <= best_instruction_set;
    auto* encoder = usable ? new (std::nothrow) bs_encoder{} : nullptr;
    if (!encoder) return nullptr;
    encoder->shape = *shape;
    encoder->ends = *ends;
    encoder->kernels = kernels_of(shape->instruction_set);
    if (encoder->kernels->prepare(*encoder)) return encoder;
    delete encoder;
    return nullptr;
}

int32_t bs_encoder_set_block(
    bs_encoder* encoder, int32_t number, const bs_block* weights, int32_t threads, int32_t told[2]
) {
    const Kernels& kernels = *encoder->kernels;
    try {
        Plan plan;
        Failure failure = kernels.plan_block(*encoder, number, *weights, plan);
        std::mutex mutex;
        std::atomic<int> next{0};
        const auto fail = [&](const Failure& found) {
            std::lock_guard lock(mutex);
            if (!failure.status) failure = found;
            next = plan.panels;
        };
        const auto work = [&](int, int) {
            void* memory = workspace.of_size(std::max(plan.room, LINE));
            if (!memory) return fail({BS_NO_MEMORY});
            for (int panel; (panel = next++) < plan.panels;) {
                const Failure found = kernels.pack_panel(*encoder, *weights, plan, panel, memory);
                if (found.status) return fail(found);
            }
        };
        if (!failure.status) run_threads(std::max(threads, 1), work);
        told[0] = failure.tensor;
        told[1] = failure.error;
        return failure.status;
    } catch (const std::bad_alloc&) {
        return BS_NO_MEMORY;
    }
}

void bs_encoder_free(bs_encoder* encoder) { delete encoder; }

int32_t bs_encoder_forward(bs_encoder* encoder, const bs_call* call) {
    try {
        if (const int32_t wrong = check(*encoder, *call)) return wrong;
        if (!call->tokens) return BS_OK;
        const int64_t threads = std::max(call->threads, 1);
        const int64_t most = largest_chunk(encoder->shape);
        // as many chunks for each thread
        const int64_t turns = (call->tokens + most * threads - 1) / (most * threads);
        std::vector<Chunk> chunks = cut(*call, turns * threads);
        int64_t largest = 0;
        for (const Chunk& chunk : chunks) largest = std::max(largest, chunk.tokens);
        if (threads > 1 && largest * threads > call->tokens * 5 / 4)
            return quickest(*encoder, *call, chunks);
        return separately(*encoder, *call, chunks);
    } catch (const std::bad_alloc&) {
        return BS_NO_MEMORY;
    }
}

int32_t bs_cross_entropy(const bs_losses* call) {
    for (int64_t row = 0; row < call->rows; row++)
        if (call->labels[row] < 0 || call->labels[row] >= call->classes) return BS_BAD_LABEL;
    const int32_t set = call->instruction_set;
    if (set <= BS_NOTHING || set > best_instruction_set || (call->bf16 && set < BS_AVX512_BF16))
        return BS_BAD_TYPE;
    Losses losses{*call, losses_of(set)};
    // a thread is not woken up for less than this
    return compute(*call, call->rows * call->classes / 65536, losses);
}

int32_t bs_dropout_masks(const bs_masks* call) {
    const int32_t set = call->instruction_set;
    if (set <= BS_NOTHING || set > best_instruction_set || (call->bytes != 2 && call->bytes != 4))
        return BS_BAD_TYPE;
    Masks masks{*call, masks_of(set)};
    // a thread is not woken up for less than this
    return compute(*call, call->count / (1 << 21), masks);
}

int32_t bs_all_finite(const float* numbers, int64_t count) {
    constexpr uint32_t EXPONENT = 0x7F800000;
    // the compiler makes vectors of this; a part at a time, to end soon after one that is not
    constexpr int64_t PART = 4096;
    for (int64_t begin = 0; begin < count; begin += PART) {
        const int64_t end = std::min(begin + PART, count);
        uint32_t found = 0;
        for (int64_t i = begin; i < end; i++) {
            uint32_t bits;
            std::memcpy(&bits, numbers + i, sizeof bits);
            found |= (bits & EXPONENT) == EXPONENT;
        }
        if (found) return 0;
    }
    return 1;
}
