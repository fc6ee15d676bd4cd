"""Users of the admin. What they may do is granted to their identities, not here."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group, User
from django.http import HttpRequest
from unfold.admin import ModelAdmin
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from orchestrator.access import identities
from orchestrator.access.login_page import LoginForm
from orchestrator.access.models import Identity
from orchestrator.core.admin.guarded import Guarded
from orchestrator.core.authority import PermissionMissing

admin.site.login_form = LoginForm

admin.site.unregister(User)
admin.site.unregister(Group)  # groups give Django's permissions, which count for nothing here


@admin.register(User)
class UserAdmin(Guarded, DjangoUserAdmin, ModelAdmin):
    """Only a superuser changes superusers, and makes some. Nobody changes another user who may do
    more."""

    # nobody deletes: the journal of the admin would go with its user. Identities are disabled
    view_permission = add_permission = change_permission = "access.manage"
    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm
    list_display = ("username", "email", "is_active", "is_staff", "is_superuser")
    list_filter = ("is_active", "is_staff", "is_superuser")
    filter_horizontal = ()
    fieldsets = (
        (None, {"fields": ("username", "password")}),
        ("Person", {"fields": ("first_name", "last_name", "email")}),
        (
            "Access",
            {
                "fields": ("is_active", "is_staff", "is_superuser"),
                "description": "Staff may log in here. A superuser is an admin; to others, grant "
                "roles on the page of their identity, where they are also disabled and enabled.",
            },
        ),
        ("Times", {"fields": ("last_login", "date_joined")}),
    )

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        # `identities.disable` and `enable` have rules, which a form would go around
        fields = (*super().get_readonly_fields(request, obj), "is_active")
        return fields if request.user.is_superuser else (*fields, "is_superuser")

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self._may_touch(request, obj) and super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self._may_touch(request, obj) and super().has_delete_permission(request, obj)

    def _may_touch(self, request: HttpRequest, obj: Any) -> bool:
        if obj is None or request.user.is_superuser or obj.pk == request.user.pk:
            return True
        return not obj.is_superuser and self._covers(request, obj)

    def _covers(self, request: HttpRequest, obj: User) -> bool:
        """Return True if the user may do all that another one may: whoever sets a password can log
        in with it."""
        identity = Identity.objects.filter(user=obj).first()
        given = () if identity is None else identities.given_to(identity)
        try:
            identities.require_cover(given, by=self.principal(request), what="Changing")
        except PermissionMissing:
            return False
        return True
