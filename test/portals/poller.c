/* Says "polls", and polls a counting event by PtlCTGet() alone, for ever. */

#include <portals4.h>
#include <stdio.h>

int main(void)
{
    ptl_handle_ni_t interface;
    ptl_handle_ct_t counter;
    ptl_ct_event_t count;

    if (PtlInit() != PTL_OK)
        return 2;
    if (PtlNIInit(PTL_IFACE_DEFAULT, PTL_NI_MATCHING | PTL_NI_PHYSICAL, PTL_PID_ANY, NULL, NULL, &interface))
        return 2;
    if (PtlCTAlloc(interface, &counter) != PTL_OK)
        return 2;
    puts("polls");
    fflush(stdout);
    while (PtlCTGet(counter, &count) == PTL_OK) {
    }
    return 3;
}
