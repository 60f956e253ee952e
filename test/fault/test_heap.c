/* SPDX-License-Identifier: MIT */
/* The campaign over the scenes it is linked with. */
#include "rig.h"

#define SCENES_MAX 64

static struct verdict run(size_t scenario, const struct faults *faults)
{
    static struct rig rig;
    rig_setup(&rig, &scenes[scenario], faults);
    scenes[scenario].act(&rig);
    struct verdict verdict = {rig.strikes[0] != 0, rig.strikes[1] != 0};
    rig_finish(&rig);
    return verdict;
}

static void whatever_fails_nothing_is_lost(void **state)
{
    campaign_run(*state);
}

int main(int n, char **arguments)
{
    static struct campaign campaign;
    const char *names[SCENES_MAX] = {NULL};
    struct suite suite = {arguments[0], names, run, true, false};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(whatever_fails_nothing_is_lost, &campaign),
    };
    for (size_t i = 0; scenes[i].name; i++)
        names[i] = scenes[i].name;
    if (!campaign_read(&campaign, &suite, n, arguments))
        return 2;
    int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (!n_failed)
        campaign_report(&campaign);
    return n_failed;
}
