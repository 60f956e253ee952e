/* SPDX-License-Identifier: MIT */
/* Bytes become a program of the pool's operations: requests, plans that stay open while others
 * begin and end, claims, frees, removals with every outcome, metadata that fails. After every
 * operation all books are checked. */
#include "input.h"
#include "pool_model.h"

#define PLANS_MAX 4
#define REMOVALS_MAX 24
#define REQUEST_PAGES_MAX 32
#define STREAMS 4

struct open_plan {
    struct vpmm_plan *plan;
    uint64_t pages, stream, number; /* pages 0: growth */
};

static struct input input;
static struct open_plan plans[PLANS_MAX];
static size_t n_plans;
static struct vpmm_removal removals[REMOVALS_MAX];
static size_t n_removals;
static uint64_t last_number;
static uint64_t mappings_max;

/* ---- answers ---- */

/* A request for a plan, and what there was to build on before it. */
struct question {
    uint64_t pages, create_pages_max;
    struct prospect prospect;
    uint64_t failures;
};

static struct question ask(uint64_t pages, uint64_t create_pages_max)
{
    return (struct question){pages, create_pages_max, model_prospect(pages), model_failures()};
}

static uint64_t planned_mappings(void)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n_plans; i++)
        sum += plans[i].plan->n_steps;
    return sum;
}

static uint64_t least(const struct question *question)
{
    uint64_t movable = question->prospect.movable;
    return question->pages > movable ? question->pages - movable : 0;
}

/* No plan need create more, but for the extra pages. */
static uint64_t enough(const struct question *question)
{
    const struct prospect *prospect = &question->prospect;
    if (prospect->hole < question->pages)
        return UINT64_MAX;
    return prospect->hole < question->pages + prospect->largest ? question->pages - prospect->snug
                                                                : least(question);
}

static bool is_right(enum vpmm_status status, const struct question *question,
                     const struct vpmm_plan *plan)
{
    const struct prospect *prospect = &question->prospect;
    uint64_t pages = question->pages, limit = question->create_pages_max;
    uint64_t mappings = prospect->mappings + planned_mappings();
    uint64_t created = plan ? plan->created_pages : 0;
    switch (status) {
    case VPMM_OK:
        created -= created > prospect->extra ? prospect->extra : created;
        return plan->created_pages <= limit && created <= enough(question) &&
               mappings + plan->n_steps <= mappings_max;
    case VPMM_NOT_FOUND:
        return limit < (prospect->hole < pages ? least(question) : enough(question));
    case VPMM_NO_SPACE:
        return prospect->hole < pages && limit >= least(question) &&
               (limit < pages || prospect->reach < pages);
    case VPMM_NO_METADATA:
        return model_failures() > question->failures;
    case VPMM_NOT_SUPPORTED:
        return mappings + pages > mappings_max;
    default:
        return false;
    }
}

static void judge(enum vpmm_status status, const struct question *question,
                  const struct vpmm_plan *plan)
{
    const struct prospect *prospect = &question->prospect;
    if (!is_right(status, question, plan))
        fail_msg("status %d (%lld created) for %lld pages with at most %lld new ones; hole %lld, "
                 "reach %lld, movable %lld, snug %lld, mappings %lld and %lld planned, in %s",
                 status, plan ? (long long)plan->created_pages : -1LL, (long long)question->pages,
                 (long long)question->create_pages_max, (long long)prospect->hole,
                 (long long)prospect->reach, (long long)prospect->movable,
                 (long long)prospect->snug, (long long)prospect->mappings,
                 (long long)planned_mappings(), world_layout(&world));
}

/* ---- requests ---- */

static void end_plan(size_t which, uint64_t trouble)
{
    struct open_plan open = plans[which];
    struct vpmm_plan *plan = open.plan;
    uint64_t address, done = 0, stuck = 0;
    plans[which] = plans[--n_plans];
    if (trouble % 4 != 1) {
        for (uint32_t i = 0; i < plan->n_steps; i++)
            model_step(&plan->steps[i]);
        vpmm_pool_commit(world.pool, plan, &address);
        if (open.pages)
            model_add_block(address, open.pages, open.stream, open.number);
        return;
    }
    uint32_t n_done = (uint32_t)(trouble / 4 % 8);
    uint32_t n_stuck = (uint32_t)(trouble / 32);
    n_done = n_done < plan->n_steps ? n_done : plan->n_steps;
    n_stuck = n_stuck < n_done ? n_stuck : n_done;
    for (uint32_t i = 0; i < n_done; i++) {
        model_step(&plan->steps[i]);
        done += plan->steps[i].pages;
        stuck += i < n_stuck ? plan->steps[i].pages : 0;
    }
    world_unmap(&world, plan->address + stuck * world.page_bytes, done - stuck);
    if (trouble & 32 && n_done < plan->n_steps && plan->steps[n_done].kind == VPMM_STEP_MOVE) {
        vpmm_pool_fix_extent(world.pool, plan, n_done);
        model_fix(&plan->steps[n_done]);
    }
    vpmm_pool_abandon(world.pool, plan, stuck);
}

static void op_malloc(void)
{
    uint64_t pages = 1 + input_below(&input, REQUEST_PAGES_MAX);
    uint64_t stream = input_below(&input, STREAMS + 1);
    uint64_t trouble = input_byte(&input), end = input_byte(&input);
    if (n_blocks + n_plans >= BLOCKS_MAX || n_plans == PLANS_MAX)
        return;
    struct vpmm_want want = world_want(&world, pages, stream);
    struct vpmm_pool_totals before = world_totals(&world);
    struct open_plan open = {NULL, pages, stream, ++last_number};
    uint64_t address;
    want.owner.id = open.number;
    want.create_pages_max = trouble & 1 ? trouble / 8 : UINT64_MAX;
    struct question question = ask(pages, want.create_pages_max);
    model_set_trouble(trouble);
    enum vpmm_status status = vpmm_pool_fit(world.pool, &want, &address);
    if (status == VPMM_NOT_FOUND) {
        assert_true(question.prospect.run < pages);
        status = vpmm_pool_revive(world.pool, &want, &address);
    }
    if (status == VPMM_NOT_FOUND) {
        status = vpmm_pool_plan(world.pool, &want, &open.plan);
        judge(status, &question, open.plan);
    } else if (status) {
        assert_int_equal(status, VPMM_NO_METADATA);
        assert_true(model_failures() > question.failures);
    } else {
        model_add_block(address, pages, stream, open.number);
    }
    model_set_trouble(0);
    assert_int_equal(world_totals(&world).held_pages, before.held_pages);
    if (status == VPMM_NO_SPACE)
        model_add_root();
    if (!open.plan)
        return;
    world_check_plan(&world, open.plan);
    plans[n_plans++] = open;
    if (end % 4)
        end_plan(n_plans - 1, end >> 1);
}

static void op_serve_at(void)
{
    uint64_t pages = 1 + input_below(&input, REQUEST_PAGES_MAX);
    uint64_t stream = input_below(&input, STREAMS + 1);
    uint64_t trouble = input_byte(&input);
    uint64_t page = input_byte(&input) | trouble << 8;
    if (n_blocks + n_plans >= BLOCKS_MAX)
        return;
    model_set_trouble(trouble);
    model_serve_at(page % (n_roots * ROOT_PAGES + 1), pages, stream, ++last_number);
    model_set_trouble(0);
}

static void op_grow(void)
{
    uint64_t pages = 1 + input_below(&input, 16);
    struct open_plan open = {0};
    if (n_plans == PLANS_MAX)
        return;
    struct question question = ask(pages, UINT64_MAX);
    /* Growth builds on holes alone. */
    question.prospect.movable = question.prospect.snug = question.prospect.reach = 0;
    model_set_trouble(input_byte(&input));
    enum vpmm_status status = vpmm_pool_plan_growth(world.pool, pages, &open.plan);
    model_set_trouble(0);
    judge(status, &question, open.plan);
    if (status == VPMM_NO_SPACE)
        model_add_root();
    if (status)
        return;
    world_check_plan(&world, open.plan);
    assert_int_equal(open.plan->created_pages, pages);
    plans[n_plans++] = open;
}

static void op_end(void)
{
    uint64_t which = input_byte(&input), trouble = input_byte(&input);
    if (n_plans)
        end_plan(which % n_plans, trouble);
}

/* ---- frees ---- */

static vpmm_fence some_fence(uint64_t kind)
{
    switch (kind % 4) {
    case 0:
        return VPMM_FENCE_NONE;
    case 1: /* one of the last: neighbours may share it */
        return world.n_fences ? world.n_fences - kind / 4 % (world.n_fences < 3 ? 1 : 3) : 0;
    default:
        return world_fence(&world, kind / 4 % (STREAMS + 1));
    }
}

/* The second half of a free; the first was its claim. */
static void finish_free(size_t which, uint64_t kind)
{
    struct vpmm_region_view region;
    uint64_t address = world_address(&world, blocks[which].page);
    vpmm_fence fence = some_fence(kind);
    assert_int_equal(vpmm_pool_find(world.pool, address, &region), VPMM_OK);
    assert_int_equal(region.state, VPMM_REGION_BUSY);
    vpmm_fence joined = world.view.join(&world, region.fence, fence);
    model_drop_block(which, joined);
    vpmm_pool_free(world.pool, address, joined, world_stream(&world, joined));
}

static void op_free(void)
{
    uint64_t which = input_byte(&input), kind = input_byte(&input);
    struct vpmm_region_view region;
    if (!n_blocks)
        return;
    struct block *block = &blocks[which % n_blocks];
    uint64_t address = world_address(&world, block->page);
    enum vpmm_status status = vpmm_pool_claim(world.pool, address, &region);
    assert_int_equal(status, block->is_claimed ? VPMM_NOT_FOUND : VPMM_OK);
    assert_int_equal(vpmm_pool_claim(world.pool, address, &region), VPMM_NOT_FOUND);
    block->is_claimed = true;
    if (kind & 0x80)
        finish_free(which % n_blocks, kind);
}

/* A free of what is not the start of a block, and a look at it. */
static void op_wrong_free(void)
{
    uint64_t page = input_byte(&input) | input_byte(&input) << 8;
    uint64_t address = world_address(&world, page % (ROOTS_MAX * ROOT_PAGES)) + page % 5;
    struct vpmm_region_view region;
    for (size_t i = 0; i < n_blocks; i++)
        if (world_address(&world, blocks[i].page) == address && !blocks[i].is_claimed)
            return;
    assert_int_equal(vpmm_pool_claim(world.pool, address, &region), VPMM_NOT_FOUND);
    enum vpmm_status status = vpmm_pool_find(world.pool, address, &region);
    assert_int_equal(
        status, address < world_address(&world, n_roots * ROOT_PAGES) ? VPMM_OK : VPMM_NOT_FOUND);
}

/* ---- fences ---- */

static void op_complete(void)
{
    uint64_t mask = input_byte(&input);
    for (uint64_t i = 0; i < 8 && i < world.n_fences; i++)
        if (mask >> i & 1)
            model_complete(world.n_fences - i);
    for (vpmm_fence fence = 1; mask % 4 == 3 && fence + 8 < world.n_fences; fence++)
        model_complete(fence);
    if (mask & 0x80) { /* what is only in order for a stream stays pending */
        world.stream = mask % (STREAMS + 1);
        vpmm_pool_settle(world.pool, &world.view);
        vpmm_pool_settle_all(world.pool, &world.view);
        model_check_pending();
    }
}

/* ---- removals ---- */

static void finish_removal(size_t which, uint64_t outcome)
{
    struct vpmm_removal removal = removals[which];
    removals[which] = removals[--n_removals];
    if (outcome % 8 == 1 && removal.extent) {
        vpmm_pool_removal_done(world.pool, &removal, VPMM_KEPT);
    } else if (outcome % 8 == 2) {
        vpmm_pool_removal_done(world.pool, &removal, VPMM_STUCK);
    } else {
        world_unmap(&world, removal.address, removal.pages);
        vpmm_pool_removal_done(world.pool, &removal, VPMM_REMOVED);
    }
}

static void op_take(void)
{
    uint64_t what = input_byte(&input), outcome = input_byte(&input);
    size_t room = what / 4 % 8;
    size_t first = n_removals;
    room = room < REMOVALS_MAX - n_removals ? room : REMOVALS_MAX - n_removals;
    world.stream = 0;
    if (what % 4 == 0) {
        n_removals += vpmm_pool_take_quarantined(world.pool, removals + n_removals, room);
    } else if (what % 4 == 1) {
        model_set_trouble(outcome);
        n_removals += vpmm_pool_take_extents(world.pool, what / 8, what, removals + first, room);
        model_set_trouble(0);
    } else {
        n_removals += vpmm_pool_take_zombies(world.pool, &world.view, removals + n_removals, room);
    }
    assert_true(n_removals <= first + room);
    for (size_t i = first; i < n_removals; i++)
        assert_int_equal(removals[i].extent != 0, what % 4 == 1);
    model_check();
    while (outcome < 0xc0 && n_removals > first) {
        finish_removal(n_removals - 1, outcome);
        model_check();
    }
}

static void op_finish(void)
{
    uint64_t which = input_byte(&input);
    uint64_t outcome = input_byte(&input);
    if (n_removals && outcome & 1)
        finish_removal(which % n_removals, outcome / 2);
    else if (n_blocks && blocks[which % n_blocks].is_claimed)
        finish_free(which % n_blocks, outcome);
}

/* ---- programs ---- */

static void finish_program(void)
{
    while (n_plans)
        end_plan(n_plans - 1, 0);
    model_check();
    while (n_removals)
        finish_removal(n_removals - 1, 0);
    while (n_blocks) {
        struct vpmm_region_view region;
        if (!blocks[0].is_claimed)
            assert_int_equal(
                vpmm_pool_claim(world.pool, world_address(&world, blocks[0].page), &region),
                VPMM_OK);
        finish_free(0, n_blocks);
    }
    for (vpmm_fence fence = 1; fence <= world.n_fences; fence++)
        world_complete(&world, fence);
    world_settle(&world);
    (void)world_reap(&world, true);
    while ((n_removals = vpmm_pool_take_quarantined(world.pool, removals, REMOVALS_MAX)) > 0)
        while (n_removals)
            finish_removal(n_removals - 1, 0);
    (void)world_trim(&world, UINT64_MAX, true);
    struct vpmm_pool_totals totals = world_totals(&world);
    assert_int_equal(totals.hole_pages, totals.root_pages);
    assert_int_equal(totals.held_pages + totals.mappings + totals.extents, 0);
    world_finish(&world);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static void (*const operations[])(void) = {
        op_malloc, op_malloc,   op_malloc,     op_free,     op_free, op_finish,
        op_end,    op_end,      op_take,       op_take,     op_grow, op_finish,
        op_free,   op_serve_at, op_wrong_free, op_complete,
    };
    input = (struct input){data, data + bytes};
    n_plans = n_removals = 0;
    last_number = 0;
    uint64_t shape = input_byte(&input);
    mappings_max = shape < 0xc0 ? 1 << 18 : 8 * (shape % 16 + 1);
    model_init(shape % 9, mappings_max);
    while (!input_is_over(&input) &&
           world.n_extents + REQUEST_PAGES_MAX * PLANS_MAX < EXTENTS_MAX) {
        operations[input_below(&input, 16)]();
        model_check();
    }
    finish_program();
    return 0;
}
